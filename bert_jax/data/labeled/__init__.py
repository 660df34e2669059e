"""Labeled examples for fine-tuning, from files of the usual formats and from TFDS."""

from bert_jax.data.labeled.loader import read

__all__ = ['read']
