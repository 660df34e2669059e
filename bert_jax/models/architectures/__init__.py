"""Architectures by name. To add a family, add a file here and its table to BUILDERS."""

from typing import Any

from bert_jax import errors
from bert_jax.lazy_table import LazyTable
from bert_jax.models.architecture import Architecture
from bert_jax.models.architectures import bert
from bert_jax.models.architectures.builder import FIELDS, Builder

# Files whose tables are imported when they are searched for a name.
_OTHERS = ('modernbert', 'deberta', 'llama_like', 'esm', 'gpt2', 'elmo', 'xlnet', 'bart', 't5')
BUILDERS: LazyTable[Builder] = LazyTable(
    {
        **bert.BUILDERS,
    },
    tables=[f'{__name__}.{file}:BUILDERS' for file in _OTHERS],
)


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
