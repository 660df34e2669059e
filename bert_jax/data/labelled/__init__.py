"""Labelled examples for fine-tuning, from files of the usual formats and from TFDS."""
