"""Bidirectional Transformer encoders in JAX: from text to a pretrained model."""
