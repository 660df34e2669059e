"""Like NeoBERT (Le Breton et al. 2025, arXiv 2502.19587): RMSNorm, SwiGLU, rotary positions, deep.

The published code pairs features 2k and 2k + 1 for the rotation, this one k and k + K/2: the same
functions, with the features of queries and keys in another order.
"""

from bert_jax.models.architecture import Architecture


def neobert(
    *,
    vocab_size: int = 30522,
    hidden_size: int = 768,
    num_layers: int = 28,
    num_heads: int | None = None,
    intermediate_size: int = 2048,
    max_position_embeddings: int = 4096,
    hidden_act: str = 'silu',
    layer_norm_eps: float = 1e-5,
    hidden_dropout: float = 0.0,
    attention_dropout: float = 0.0,
    initializer_range: float = 0.02,
    rope_theta: float = 10_000.0,
) -> Architecture:
    """The published size unless told otherwise."""
    return Architecture(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads or max(1, hidden_size // 64),
        intermediate_size=intermediate_size,
        max_position_embeddings=max_position_embeddings,
        type_vocab_size=0,
        hidden_act=hidden_act,
        layer_norm_eps=layer_norm_eps,
        hidden_dropout=hidden_dropout,
        attention_dropout=attention_dropout,
        initializer_range=initializer_range,
        embedding_norm=False,
        positions='none',
        attention='rotary',
        rope_thetas=(rope_theta,) * num_layers,
        feedforward='gated',
        norm='rms_norm',
        residual='pre',
        biases=False,
        pooler=False,
    )


BUILDERS = {'neobert': neobert}
