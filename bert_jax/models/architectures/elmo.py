"""ELMo (Peters et al. 2018, arXiv 1802.05365): a bidirectional language model of LSTM layers.

The published size reads characters and has two layers with cells of 4,096 values, projected to 512
in each direction; here tokens are subwords. transformers has no such class.
"""

from bert_jax.models.architecture_parts import Classifier, NoPositions, Norms, Recurrence
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

BUILDERS = {'elmo': ELMO}
