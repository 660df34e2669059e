"""ALBERT (Lan et al. 2020, arXiv 1909.11942; google-research/albert)."""

import functools

from bert_jax.models.architecture import Architecture


def albert(
    *,
    vocab_size: int = 30000,
    embedding_size: int = 128,
    hidden_size: int = 768,
    num_layers: int = 12,
    num_heads: int | None = None,
    intermediate_size: int | None = None,
    max_position_embeddings: int = 512,
    type_vocab_size: int = 2,
    hidden_act: str = 'gelu_tanh',
    layer_norm_eps: float = 1e-12,
    hidden_dropout: float = 0.0,
    attention_dropout: float = 0.0,
    initializer_range: float = 0.02,
) -> Architecture:
    """ALBERT base, version 2 (without dropout), unless told otherwise: small embeddings and their
    projection, one layer's parameters for all layers."""
    return Architecture(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads or max(1, hidden_size // 64),
        intermediate_size=intermediate_size or 4 * hidden_size,
        max_position_embeddings=max_position_embeddings,
        type_vocab_size=type_vocab_size,
        hidden_act=hidden_act,
        layer_norm_eps=layer_norm_eps,
        hidden_dropout=hidden_dropout,
        attention_dropout=attention_dropout,
        initializer_range=initializer_range,
        embedding_size=embedding_size,
        shared_layers=True,
    )


BUILDERS = {
    'albert': albert,
    'albert_base': albert,
    'albert_large': functools.partial(albert, num_layers=24, hidden_size=1024),
    'albert_xlarge': functools.partial(albert, num_layers=24, hidden_size=2048, num_heads=16),
    'albert_xxlarge': functools.partial(albert, hidden_size=4096),
}
