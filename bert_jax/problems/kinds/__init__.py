"""Declarations of the kinds of fine-tuning problems: keys, formats and properties."""
