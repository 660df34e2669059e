"""Bidirectional Transformer encoders in JAX: pretraining, fine-tuning and what is done with them."""
