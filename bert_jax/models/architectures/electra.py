"""ELECTRA (Clark et al. 2020, arXiv 2003.10555; google-research/electra)."""

import functools

from bert_jax.models.architecture import Architecture


def electra(
    *,
    vocab_size: int = 30522,
    embedding_size: int = 768,
    hidden_size: int = 768,
    num_layers: int = 12,
    num_heads: int | None = None,
    intermediate_size: int | None = None,
    max_position_embeddings: int = 512,
    type_vocab_size: int = 2,
    hidden_act: str = 'gelu',
    layer_norm_eps: float = 1e-12,
    hidden_dropout: float = 0.1,
    attention_dropout: float = 0.1,
    initializer_range: float = 0.02,
) -> Architecture:
    """The discriminator of ELECTRA base unless told otherwise: BERT without a pooler, and with
    embeddings of another width projected (not of the same width).

    A generator is the same with fewer features and heads; its embeddings, which it shares with its
    discriminator, keep their width.
    """
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
        embedding_size=None if embedding_size == hidden_size else embedding_size,
        pooler=False,
    )


_LARGE = dict(embedding_size=1024, num_layers=24)
BUILDERS = {
    'electra': electra,
    'electra_small': functools.partial(electra, embedding_size=128, hidden_size=256),
    'electra_small_generator': functools.partial(electra, embedding_size=128, hidden_size=256),
    'electra_base': electra,
    'electra_base_generator': functools.partial(electra, hidden_size=256),
    'electra_large': functools.partial(electra, hidden_size=1024, **_LARGE),
    'electra_large_generator': functools.partial(electra, hidden_size=256, **_LARGE),
}
