"""Cloze prompts: templates around texts, answers for classes, and how answers are scored."""
