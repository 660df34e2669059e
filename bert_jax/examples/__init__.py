"""Rows of token ids: from a corpus for pretraining, from labeled examples for fine-tuning."""
