"""What every objective is given: the clean batch, its corrupted form, the encoder's view of it."""

from typing import NamedTuple

import jax

from bert_jax.objectives.masking import Masked


class Encoded(NamedTuple):
    """One encoded batch."""

    batch: dict[str, jax.Array]  # the clean batch as read
    masked: Masked
    hidden: jax.Array  # compute dtype [B, T, D] last layer
    pooled: jax.Array | None  # compute dtype [B, D]
    embedding_table: jax.Array  # float32 [V, D] to tie a decoder to
