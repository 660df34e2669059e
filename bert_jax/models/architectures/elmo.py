"""ELMo (Peters et al. 2018, arXiv 1802.05365): a bidirectional language model of LSTM layers.

Two layers with cells of 4,096 values, projected to 512 in each direction. The published model
reads the characters of words; 'elmo' has a table of tokens. transformers has no such class.
"""

import dataclasses

from bert_jax.models.architecture_parts import (
    Characters,
    Classifier,
    NoPositions,
    Norms,
    Prediction,
    Recurrence,
)
from bert_jax.models.architectures.builder import Builder

ELMO = Builder(
    sizes=dict(num_layers=2, hidden_size=1024),
    fixed=dict(
        encoder='recurrent',
        recurrence=Recurrence(),
        num_heads=1,
        attention_dropout=0.0,
        type_vocab_size=0,
        positions=NoPositions(),
        norms=Norms(embeddings=False),
        pooler=False,
        classifier=Classifier(pooling='mean'),
    ),
)

ELMO_CHARACTERS = dataclasses.replace(
    ELMO, fixed={**ELMO.fixed, 'characters': Characters(), 'prediction': Prediction(tied=False)}
)

BUILDERS = {'elmo': ELMO, 'elmo_characters': ELMO_CHARACTERS}
