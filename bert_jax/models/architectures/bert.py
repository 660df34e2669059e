"""BERT (Devlin et al. 2019, arXiv 1810.04805) and its small sizes (Turc et al., 1908.08962)."""

import functools

from bert_jax.models.architecture import Architecture


def bert(
    *,
    vocab_size: int = 30522,
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
    """BERT base unless told otherwise. As in all published sizes, num_heads is by default
    hidden_size / 64 and intermediate_size 4 · hidden_size, so that the 24 small models are
    num_layers in {2, 4, 6, 8, 10, 12} × hidden_size in {128, 256, 512, 768}.

    hidden_act 'gelu' (exact) is what Hugging Face runs the published weights with; the original
    code has 'gelu_tanh'.
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
    )


BUILDERS = {
    'bert': bert,
    'bert_tiny': functools.partial(bert, num_layers=2, hidden_size=128),
    'bert_mini': functools.partial(bert, num_layers=4, hidden_size=256),
    'bert_small': functools.partial(bert, num_layers=4, hidden_size=512),
    'bert_medium': functools.partial(bert, num_layers=8, hidden_size=512),
    'bert_base': bert,
    'bert_large': functools.partial(bert, num_layers=24, hidden_size=1024),
}
