"""Like MosaicBERT (Portes et al. 2023, arXiv 2312.17482): BERT with ALiBi and a gated unit."""

import functools

from bert_jax.models.architecture import Architecture


def mosaicbert(
    *,
    vocab_size: int = 30528,
    hidden_size: int = 768,
    num_layers: int = 12,
    num_heads: int | None = None,
    intermediate_size: int | None = None,
    max_position_embeddings: int = 512,
    type_vocab_size: int = 2,
    hidden_act: str = 'gelu',
    layer_norm_eps: float = 1e-12,
    hidden_dropout: float = 0.1,
    attention_dropout: float = 0.0,
    initializer_range: float = 0.02,
) -> Architecture:
    """MosaicBERT base unless told otherwise. Nothing learnt depends on max_position_embeddings."""
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
        positions='none',
        attention='linear_bias',
        feedforward='gated',
    )


BUILDERS = {
    'mosaicbert': mosaicbert,
    'mosaicbert_base': mosaicbert,
    'mosaicbert_large': functools.partial(mosaicbert, num_layers=24, hidden_size=1024),
}
