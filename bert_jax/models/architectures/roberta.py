"""RoBERTa (Liu et al. 2019, arXiv 1907.11692; fairseq examples/roberta) and XLM-R (Conneau et al.
2020, arXiv 1911.02116)."""

import functools

from bert_jax.models.architecture import Architecture


def roberta(
    *,
    vocab_size: int = 50265,
    hidden_size: int = 768,
    num_layers: int = 12,
    num_heads: int | None = None,
    intermediate_size: int | None = None,
    max_position_embeddings: int = 514,
    type_vocab_size: int = 1,
    hidden_act: str = 'gelu',
    layer_norm_eps: float = 1e-5,
    hidden_dropout: float = 0.1,
    attention_dropout: float = 0.1,
    initializer_range: float = 0.02,
    pad_token_id: int = 1,
    pooler: bool = False,
) -> Architecture:
    """RoBERTa base unless told otherwise.

    Real positions are counted from pad_token_id + 1, as in fairseq, so that sequences may be
    max_position_embeddings − pad_token_id − 1 long; padding is known by the attention mask. The
    models were trained without a pooler; some files have one.
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
        positions='counted',
        first_position=pad_token_id + 1,
        pooler=pooler,
    )


_LARGE = dict(num_layers=24, hidden_size=1024)
BUILDERS = {
    'roberta': roberta,
    'roberta_base': roberta,
    'roberta_large': functools.partial(roberta, **_LARGE),
    'xlmr_base': functools.partial(roberta, vocab_size=250_002),
    'xlmr_large': functools.partial(roberta, vocab_size=250_002, **_LARGE),
}
