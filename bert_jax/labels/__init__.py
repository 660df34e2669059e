"""Labeled examples for fine-tuning, read from files or TensorFlow Datasets."""
