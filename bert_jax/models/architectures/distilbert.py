"""DistilBERT (Sanh et al. 2019, arXiv 1910.01108)."""

import functools

from bert_jax.models.architecture import Architecture


def distilbert(
    *,
    vocab_size: int = 30522,
    hidden_size: int = 768,
    num_layers: int = 6,
    num_heads: int | None = None,
    intermediate_size: int | None = None,
    max_position_embeddings: int = 512,
    hidden_act: str = 'gelu',
    layer_norm_eps: float = 1e-12,
    hidden_dropout: float = 0.1,
    attention_dropout: float = 0.1,
    initializer_range: float = 0.02,
) -> Architecture:
    """DistilBERT base unless told otherwise: half of BERT's layers, no token types, no pooler."""
    return Architecture(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=num_heads or max(1, hidden_size // 64),
        intermediate_size=intermediate_size or 4 * hidden_size,
        max_position_embeddings=max_position_embeddings,
        type_vocab_size=0,
        hidden_act=hidden_act,
        layer_norm_eps=layer_norm_eps,
        hidden_dropout=hidden_dropout,
        attention_dropout=attention_dropout,
        initializer_range=initializer_range,
        pooler=False,
    )


BUILDERS = {
    'distilbert': distilbert,
    'distilbert_base': distilbert,
    'distilbert_base_cased': functools.partial(distilbert, vocab_size=28996),
    'distilbert_base_multilingual': functools.partial(distilbert, vocab_size=119_547),
}
