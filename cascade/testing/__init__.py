"""Fakes for tests: a scripted upstream, a scripted stage and a virtual clock."""
