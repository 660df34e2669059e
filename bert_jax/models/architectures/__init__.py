"""Architectures by name. To add a family, add a file here and a line to BUILDERS."""

import inspect
from typing import Any

from bert_jax import errors
from bert_jax.models.architecture import Architecture
from bert_jax.models.architectures import (
    albert,
    bert,
    deberta,
    distilbert,
    electra,
    modernbert,
    mosaicbert,
    neobert,
    roberta,
    spanbert,
)
from bert_jax.models.architectures.builder import Builder

BUILDERS: dict[str, Builder] = {
    **albert.BUILDERS,
    **bert.BUILDERS,
    **deberta.BUILDERS,
    **distilbert.BUILDERS,
    **electra.BUILDERS,
    **modernbert.BUILDERS,
    **mosaicbert.BUILDERS,
    **neobert.BUILDERS,
    **roberta.BUILDERS,
    **spanbert.BUILDERS,
}


def build(name: str, **sizes: Any) -> Architecture:
    """Build the named architecture with some sizes changed: build('bert_base', vocab_size=8000).

    Raises:
        UserError: an unknown name or size, or sizes that do not fit together.
    """
    if name not in BUILDERS:
        raise errors.unknown('architecture', name, BUILDERS)
    known = inspect.signature(BUILDERS[name]).parameters
    for size in sizes:
        if size not in known:
            raise errors.unknown(f'size of architecture {name}', size, known)
    return BUILDERS[name](**sizes)
