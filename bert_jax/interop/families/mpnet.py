"""MPNet as transformers writes it (modeling_mpnet.py)."""

import dataclasses

from bert_jax.interop.families import roberta
from bert_jax.interop.families.family import (
    BERT_KEYS,
    Key,
    bert_like,
    common_classes,
    with_defaults,
)

_CLASSES = common_classes('MPNet')
_KEYS = {name: key for name, key in BERT_KEYS.items() if name != 'type_vocab_size'}
_LAYER = {
    'attention/query': 'attention.attn.q',
    'attention/key': 'attention.attn.k',
    'attention/value': 'attention.attn.v',
    'attention/output': 'attention.attn.o',
    'attention_norm': 'attention.LayerNorm',
}

FAMILY = dataclasses.replace(
    roberta.ROBERTA,
    model_type='mpnet',
    architecture='mpnet',
    keys=with_defaults(_KEYS, vocab_size=30527)
    | {'relative_attention_num_buckets': Key('attention.buckets', 32)},
    # The first token has row 2 of the table of positions, whatever the id of the padding token.
    complete=lambda architecture, _: architecture,
    read_by_complete={},
    fixed={},
    table=bert_like('mpnet', 'mpnet.encoder.layer.#', _LAYER)
    | {name: place for name, place in roberta.ROBERTA.table.items() if '/head/' in name}
    | {
        'encoder/relative_positions/table': 'mpnet.encoder.relative_attention_bias.weight',
        'encoder/pooler': 'mpnet.pooler.dense',
    },
    prefix='mpnet.',
    classes=_CLASSES,
    without_pooler=tuple(
        name for name in _CLASSES if not name.endswith(('Model', 'ForMultipleChoice'))
    ),
    causal_class='',
)
