"""Other programs, each in an environment of its own, run on every kind of exported model.

kinds.py makes small models with random weights and their folders, runners/ has one script for each
program, table.py runs them and writes the table of docs/export.md.
"""
