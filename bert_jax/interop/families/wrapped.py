"""Folders that hold BERT or RoBERTa inside another model: DPR and LUKE.

They are read as what they hold, and written as `bert` and `roberta` folders.
"""

import dataclasses

from bert_jax.interop.families import bert, roberta
from bert_jax.interop.families.family import with_defaults

# Dense passage retrieval (Karpukhin et al. 2020, arXiv 2004.04906): encoders for questions and for
# passages; the similarity is the dot product of the states of [CLS] (modeling_dpr.py).
DPR = dataclasses.replace(
    bert.FAMILY,
    old_prefixes=('question_encoder.bert_model.', 'ctx_encoder.bert_model.'),
    old_classes=('DPR(Question|Context)Encoder$', 'BertModel'),
    without_pooler=(*bert.FAMILY.without_pooler, 'BertModel'),
    fixed={**bert.FAMILY.fixed, 'projection_dim': 0},
    pooling='cls',
)
# LUKE (Yamada et al. 2020, arXiv 2010.01057) without entities, where it computes what RoBERTa does.
_LAYER = r'encoder\.layer\.\d+\.attention\.self\.(w2e|e2w|e2e)_query\.(weight|bias)'
LUKE = dataclasses.replace(
    roberta.ROBERTA,
    keys=with_defaults(roberta.ROBERTA.keys, vocab_size=50267),
    old_prefixes=('luke.',),
    old_classes=('Luke', 'Roberta'),
    unused=rf'(roberta\.)?(entity_embeddings\.\S+|{_LAYER})|(entity_predictions|lm_head\.entity)\S*',
)
