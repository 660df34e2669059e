"""RoBERTa and XLM-R as transformers writes them (modeling_roberta.py, modeling_xlm_roberta.py)."""

import dataclasses

from bert_jax.interop.families.family import (
    BERT_KEYS,
    Family,
    Key,
    bert_like,
    common_classes,
    with_defaults,
)

_CLASSES = common_classes('Roberta')


ROBERTA = Family(
    model_type='roberta',
    architectures=('roberta', 'roberta_base', 'roberta_large'),
    # Position ids start after the id of the padding token.
    keys=with_defaults(BERT_KEYS, vocab_size=50265) | {'pad_token_id': Key('pad_token_id', 1)},
    more_keys=lambda architecture: {'pad_token_id': architecture.first_position - 1},
    table=bert_like('roberta', 'roberta.encoder.layer.#')
    | {
        'encoder/pooler': 'roberta.pooler.dense',
        'mlm/head/transform': 'lm_head.dense',
        'mlm/head/norm': 'lm_head.layer_norm',
        'mlm/head/bias': 'lm_head.bias',
        'sequence_classification/head/transform': 'classifier.dense',
        'sequence_classification/head/output': 'classifier.out_proj',
        'multiple_choice/head/transform': 'classifier.dense',
    },
    prefix='roberta.',
    classes=_CLASSES,
    without_pooler=tuple(
        name for name in _CLASSES if not name.endswith(('Model', 'ForMultipleChoice'))
    ),
    token_keys={'pad_token_id': 'pad_id', 'bos_token_id': 'cls_id', 'eos_token_id': 'sep_id'},
    decoder='lm_head.decoder',
)

XLM_R = dataclasses.replace(
    ROBERTA,
    model_type='xlm-roberta',
    architectures=('xlmr_base', 'xlmr_large'),
    keys=with_defaults(ROBERTA.keys, vocab_size=30522),
    classes={f'XLM{name}': heads for name, heads in ROBERTA.classes.items()},
    without_pooler=tuple(f'XLM{name}' for name in ROBERTA.without_pooler),
)
