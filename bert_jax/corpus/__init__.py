"""Tokenized text on disk: making it on one or several machines, and reading it."""
