"""Encoders by name. To add an encoder, add a file here and a line to ENCODERS."""

from typing import Any

from bert_jax.errors import look_up
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.encoders.base import Encoder, EncoderOutput
from bert_jax.models.encoders.transformer import Transformer

__all__ = ['ENCODERS', 'Encoder', 'EncoderOutput', 'Transformer', 'build_encoder']

ENCODERS: dict[str, type[Encoder]] = {
    'transformer': Transformer,
}


def build_encoder(architecture: Architecture, compute: Compute, **options: Any) -> Encoder:
    """Build the encoder that the architecture names; `options` go to the Flax module."""
    return look_up('encoder', architecture.encoder, ENCODERS)(architecture, compute, **options)
