"""Encoders by name. A new one is one file here and one line in ENCODERS."""

from typing import Any

from bert_jax.errors import unknown
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.encoders.base import Encoder, EncoderOutput
from bert_jax.models.encoders.transformer import Transformer

__all__ = ['ENCODERS', 'Encoder', 'EncoderOutput', 'Transformer', 'build_encoder']

ENCODERS: dict[str, type[Encoder]] = {'transformer': Transformer}


def build_encoder(architecture: Architecture, compute: Compute, **options: Any) -> Encoder:
    """The encoder that the architecture names.

    options: `name` and `parent` of a Flax module.
    """
    if architecture.encoder not in ENCODERS:
        raise unknown('encoder', architecture.encoder, ENCODERS)
    return ENCODERS[architecture.encoder](architecture, compute, **options)
