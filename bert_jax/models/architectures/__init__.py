"""Architectures by name. To add a family, add a file here and a line to BUILDERS."""

from typing import Any

from bert_jax import errors
from bert_jax.models.architecture import Architecture
from bert_jax.models.architectures import (
    bert,
    encoder_decoders,
    language_models,
    modernbert,
)
from bert_jax.models.architectures.builder import FIELDS, Builder

BUILDERS: dict[str, Builder] = {
    **bert.BUILDERS,
    **encoder_decoders.BUILDERS,
    **language_models.BUILDERS,
    **modernbert.BUILDERS,
}


def build(name: str, **sizes: Any) -> Architecture:
    """Build the named architecture with some sizes changed: build('bert_base', vocab_size=8000).

    Raises:
        UserError: an unknown name or size, or sizes that do not fit together.
    """
    builder = find(name)
    for size in sizes:
        if size.partition('.')[0] not in FIELDS or size in builder.fixed:
            raise errors.unknown(f'size of architecture {name}', size, builder.free_fields)
    return builder(**sizes)


def find(name: str) -> Builder:
    """Return the entry of BUILDERS. Raises UserError for an unknown name."""
    return errors.look_up('architecture', name, BUILDERS)
