"""ESM-1b (Rives et al. 2021, PNAS) and ESM-2 (Lin et al. 2023, Science), models of proteins.

facebookresearch/esm. Each letter of a protein is a token; norms precede the layers, padding has no
embedding. ESM-2 rotates queries and keys, and treats masks as `TokenDropout` says.
"""

from bert_jax.models.architecture_parts import (
    Classifier,
    NoPositions,
    Norms,
    OffsetPositions,
    Prediction,
    Rotary,
    Standard,
    TokenDropout,
)
from bert_jax.models.architectures.builder import Builder

ESM = Builder(
    family='esm',
    sizes=dict(
        vocab_size=33,
        max_position_embeddings=1026,
        pooler=False,
        positions=OffsetPositions(),
        attention=Standard(),
        token_dropout=None,
        norms=Norms(placement='pre', embeddings=False),
    ),
    fixed=dict(
        type_vocab_size=0,
        embedding_mask=True,
        prediction=Prediction('gelu'),
        classifier=Classifier('dropout_dense', 'tanh', pooling='first'),
    ),
)
ESM2 = ESM.resized(
    positions=NoPositions(),
    attention=Rotary(),
    token_dropout=TokenDropout(mask_id=32),
    layer_norm_eps=1e-5,
    hidden_dropout=0.0,
    attention_dropout=0.0,
)

BUILDERS = {
    'esm': ESM,
    'esm2_8m': ESM2.resized(num_layers=6, hidden_size=320, num_heads=20),
    'esm2_35m': ESM2.resized(hidden_size=480, num_heads=20),
    'esm2_150m': ESM2.resized(num_layers=30, hidden_size=640, num_heads=20),
    'esm2_650m': ESM2.resized(num_layers=33, hidden_size=1280, num_heads=20),
    'esm2_3b': ESM2.resized(num_layers=36, hidden_size=2560, num_heads=40),
}
