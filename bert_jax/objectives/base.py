"""What every objective is given: the clean batch, what the encoder saw of it, and its states."""

from typing import NamedTuple

import jax

from bert_jax.objectives.edits import Edited
from bert_jax.objectives.generator import Replaced
from bert_jax.objectives.masking import Masked


class Encoded(NamedTuple):
    """One encoded batch."""

    batch: dict[str, jax.Array]  # the clean batch as read
    corrupted: Masked | Replaced | Edited
    hidden: jax.Array  # compute dtype [B, T, D] last layer
    decoded: jax.Array  # compute dtype [B, T, D] to predict tokens from (EncoderOutput)
    pooled: jax.Array | None  # compute dtype [B, D], of packed rows [B, S, D]
    embedding_table: jax.Array  # float32 [V, D] to tie a decoder to
