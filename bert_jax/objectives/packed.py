"""Rows of several examples each (data/packing.py), as the objectives see them."""

from bert_jax.models.packed_rows import segment_starts

_ARGUMENTS = {'segment_ids_BT': 'segment_ids', 'first_positions_BS': 'first_positions'}


def encoder_arguments(batch) -> dict:
    """What an encoder is told of packed rows; nothing of others."""
    return {argument: batch[key] for argument, key in _ARGUMENTS.items() if key in batch}


def example_starts(batch):
    """int32 [B, T]: where the example of each position begins; None for one example a row."""
    return segment_starts(batch['segment_ids']) if 'segment_ids' in batch else None
