"""XLNet (Yang et al. 2019, arXiv 1906.08237; zihangdai/xlnet), without its memory.

Two streams with relative positions. Token types are 0 and 1 for two texts and 2 for the [CLS] at
the end; attention sees whether they are equal. The original code uses 'gelu_tanh', Hugging Face
runs the published weights with 'gelu'. Positions have no table: max_position_embeddings is only a
limit, the length of rows in pretraining.
"""

from bert_jax.models.architecture_parts import (
    Biases,
    Classifier,
    NoPositions,
    Norms,
    Prediction,
    Relative,
)
from bert_jax.models.architectures.builder import Builder

XLNET = Builder(
    family='xlnet',
    sizes=dict(vocab_size=32000, hidden_act='gelu_tanh', type_vocab_size=3),
    fixed=dict(
        encoder='two_stream',
        attention=Relative(),
        positions=NoPositions(),
        norms=Norms(embeddings=False),
        biases=Biases(attention='none'),
        pooler=False,
        prediction=Prediction(transform=False),
        classifier=Classifier('dropout_dense', pooling='last'),
    ),
)

BUILDERS = {
    'xlnet': XLNET,
    'xlnet_base': XLNET,
    'xlnet_large': XLNET.resized(num_layers=24, hidden_size=1024),
}
