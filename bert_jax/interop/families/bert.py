"""BERT, and SpanBERT under its name, as transformers writes it (modeling_bert.py)."""

from bert_jax.interop.families.family import BERT_KEYS, Family, bert_like, common_classes
from bert_jax.models.architectures import bert, spanbert

FAMILY = Family(
    model_type='bert',
    architectures=(*bert.BUILDERS, *spanbert.BUILDERS),
    keys=BERT_KEYS,
    # In configs of the Chinese and multilingual models, which have the usual pooler.
    harmless='directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers '
    'pooler_size_per_head pooler_type',
    table=bert_like('bert', 'bert.encoder.layer.#')
    | {
        'encoder/pooler': 'bert.pooler.dense',
        'mlm/head/transform': 'cls.predictions.transform.dense',
        'mlm/head/norm': 'cls.predictions.transform.LayerNorm',
        'mlm/head/bias': 'cls.predictions.bias',
        'nsp/head/dense': 'cls.seq_relationship',
    },
    prefix='bert.',
    classes=common_classes('Bert')
    | {'BertForPreTraining': ('mlm', 'nsp'), 'BertForNextSentencePrediction': ('nsp',)},
    without_pooler=('BertForMaskedLM', 'BertForTokenClassification', 'BertForQuestionAnswering'),
    old_names={'LayerNorm.gamma': 'LayerNorm.weight', 'LayerNorm.beta': 'LayerNorm.bias'},
    decoder='cls.predictions.decoder',
)
