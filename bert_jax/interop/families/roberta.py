"""RoBERTa as transformers writes it (modeling_roberta.py), and models that differ only in names."""

from bert_jax.interop.families.family import (
    BERT_FIXED,
    BERT_KEYS,
    Family,
    bert_like,
    common_classes,
    renamed,
    with_defaults,
)
from bert_jax.models.architecture import Architecture
from bert_jax.types import JsonView

_CLASSES = common_classes('Roberta')


def _complete(architecture: Architecture, config: JsonView) -> Architecture:
    return architecture.changed({'positions.first': config.get('pad_token_id', 1) + 1})


ROBERTA = Family(
    model_type='roberta',
    architecture='roberta',
    # Position ids start after the id of the padding token.
    keys=with_defaults(BERT_KEYS, vocab_size=50265),
    complete=_complete,
    read_by_complete={'pad_token_id': int},
    fixed=BERT_FIXED,
    more_keys=lambda architecture: {'pad_token_id': architecture.first_position - 1},
    table=bert_like('roberta', 'roberta.encoder.layer.#')
    | {
        'encoder/pooler': 'roberta.pooler.dense',
        'mlm/head/transform': 'lm_head.dense',
        'mlm/head/norm': 'lm_head.layer_norm',
        'mlm/head/bias': 'lm_head.bias',
        'mlm/head/decoder': 'lm_head.decoder.weight',
        'sequence_classification/head/transform': 'classifier.dense',
        'sequence_classification/head/output': 'classifier.out_proj',
        'multiple_choice/head/transform': 'classifier.dense',
    },
    prefix='roberta.',
    classes=_CLASSES,
    without_pooler=tuple(
        name for name in _CLASSES if not name.endswith(('Model', 'ForMultipleChoice'))
    ),
    causal_class='RobertaForCausalLM',
    token_keys={'pad_token_id': 'pad_id', 'bos_token_id': 'cls_id', 'eos_token_id': 'sep_id'},
    decoder='lm_head.decoder',
)

_SMALLER = with_defaults(ROBERTA.keys, vocab_size=30522)  # their default vocabulary
XLM_R = renamed(ROBERTA, 'xlm-roberta', 'XLMRoberta', architecture='xlmr_base', keys=_SMALLER)
CAMEMBERT = renamed(ROBERTA, 'camembert', 'Camembert', keys=_SMALLER)
DATA2VEC = renamed(ROBERTA, 'data2vec-text', 'Data2VecText', 'data2vec_text.', keys=_SMALLER)
