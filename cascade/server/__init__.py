"""Speak HTTP: parse, render and report errors, without deciding anything."""
