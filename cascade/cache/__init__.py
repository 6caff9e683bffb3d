"""The score cache: scores of pairs that were scored before, kept without their text."""
