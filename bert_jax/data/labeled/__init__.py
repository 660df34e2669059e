"""Labeled examples for fine-tuning, read from files of common formats or TensorFlow Datasets."""
