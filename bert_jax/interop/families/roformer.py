"""RoFormer as transformers writes it (modeling_roformer.py)."""

import dataclasses

import numpy as np

from bert_jax.interop.families import bert
from bert_jax.interop.families.family import (
    BERT_KEYS,
    Key,
    bert_like,
    common_classes,
    with_defaults,
)
from bert_jax.models.architecture import Architecture

_CLASSES = common_classes('RoFormer')
del _CLASSES['RoFormerForMultipleChoice']  # reads the last position, even of padding
_PAIRED = {f'attention/{part}': f'attention.self.{part}|0/1 in pairs' for part in ('query', 'key')}
_KEYS = with_defaults(BERT_KEYS, vocab_size=50_000, max_position_embeddings=1536)
del _KEYS['classifier_dropout']


def _constants(architecture: Architecture) -> dict[str, np.ndarray]:
    """The sines, then the cosines, of the angles of each position."""
    size = architecture.head_size
    frequencies = 1 / np.power(10_000, np.arange(0, size, 2) / size)
    angles = np.arange(architecture.max_position_embeddings)[:, None] * frequencies
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return {'roformer.encoder.embed_positions.weight': waves.astype(np.float32)}


FAMILY = dataclasses.replace(
    bert.FAMILY,
    model_type='roformer',
    architecture='roformer',
    keys=_KEYS | {'embedding_size': Key('embedding_size', None, kind=int)},
    more_keys=lambda architecture: {'embedding_size': architecture.embedding_width},
    fixed={'rotary_value': False},
    constants=_constants,
    table=bert_like('roformer', 'roformer.encoder.layer.#', _PAIRED)
    | {ours: name for ours, name in bert.FAMILY.table.items() if ours.startswith('mlm/')}
    | {
        'encoder/embeddings/projection': 'roformer.embeddings_project',
        'sequence_classification/head/transform': 'classifier.dense',
        'sequence_classification/head/output': 'classifier.out_proj',
    },
    prefix='roformer.',
    classes=_CLASSES,
    without_pooler=(),
    causal_class='RoFormerForCausalLM',
    buffers=r'(roformer\.)?encoder\.embed_positions\.weight',
)
