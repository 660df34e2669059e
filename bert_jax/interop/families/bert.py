"""BERT, also for SpanBERT, and ERNIE, as transformers writes them (modeling_bert.py)."""

from bert_jax.interop.families.family import (
    BERT_FIXED,
    BERT_KEYS,
    Family,
    bert_like,
    common_classes,
    renamed,
)

FAMILY = Family(
    model_type='bert',
    architecture='bert',
    keys=BERT_KEYS,
    fixed=BERT_FIXED,
    table=bert_like('bert', 'bert.encoder.layer.#')
    | {
        'encoder/pooler': 'bert.pooler.dense',
        'mlm/head/transform': 'cls.predictions.transform.dense',
        'mlm/head/norm': 'cls.predictions.transform.LayerNorm',
        'mlm/head/bias': 'cls.predictions.bias',
        'mlm/head/decoder': 'cls.predictions.decoder.weight',
        'nsp/head/dense': 'cls.seq_relationship',
    },
    prefix='bert.',
    classes=common_classes('Bert')
    | {'BertForPreTraining': ('mlm', 'nsp'), 'BertForNextSentencePrediction': ('nsp',)},
    without_pooler=('BertForMaskedLM', 'BertForTokenClassification', 'BertForQuestionAnswering'),
    causal_class='BertLMHeadModel',
    old_names={'LayerNorm.gamma': 'LayerNorm.weight', 'LayerNorm.beta': 'LayerNorm.bias'},
    decoder='cls.predictions.decoder',
)

# With use_task_id, ERNIE adds task embeddings, which are not supported.
ERNIE = renamed(
    FAMILY,
    'ernie',
    'Ernie',
    'ernie.',
    causal_class='ErnieForCausalLM',
    fixed=BERT_FIXED | {'use_task_id': False},
)
