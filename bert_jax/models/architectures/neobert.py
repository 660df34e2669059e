"""After NeoBERT (Le Breton et al. 2025, arXiv 2502.19587).

RMSNorm, SwiGLU, rotary attention, 28 layers. The published code rotates feature pairs 2k and
2k + 1, this code k and k + K/2: the same function with permuted query and key features.
"""

from bert_jax.models.architectures.builder import Builder

NEOBERT = Builder(
    sizes=dict(
        num_layers=28,
        intermediate_size=2048,
        max_position_embeddings=4096,
        hidden_act='silu',
        layer_norm_eps=1e-5,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        rope_theta=10_000.0,
    ),
    fixed=dict(
        type_vocab_size=0,
        embedding_norm=False,
        positions='none',
        attention='rotary',
        feedforward='gated',
        norm='rms_norm',
        residual='pre',
        biases=False,
        pooler=False,
        pooling='first',
        classifier='dropout_dense',
    ),
    derive=lambda num_layers, rope_theta, **_: dict(rope_thetas=(rope_theta,) * num_layers),
)

BUILDERS = {'neobert': NEOBERT}
