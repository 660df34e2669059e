"""ModernBERT (Warner et al. 2024, arXiv 2412.13663; AnswerDotAI/ModernBERT)."""

import functools

from bert_jax.models.architecture import Architecture


def modernbert(
    *,
    vocab_size: int = 50368,
    hidden_size: int = 768,
    num_layers: int = 22,
    num_heads: int | None = None,
    intermediate_size: int = 1152,
    max_position_embeddings: int = 8192,
    hidden_act: str = 'gelu',
    layer_norm_eps: float = 1e-5,
    hidden_dropout: float = 0.0,
    attention_dropout: float = 0.0,
    initializer_range: float = 0.02,
    local_window: int = 64,
    global_every: int = 3,
    local_theta: float = 10_000.0,
    global_theta: float = 160_000.0,
) -> Architecture:
    """ModernBERT base unless told otherwise.

    Layers 0, global_every, 2 · global_every … attend to all positions, the others to those at most
    local_window away; rotary positions have a base of their own in either.
    """
    is_global = [number % global_every == 0 for number in range(num_layers)]
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
        positions='none',
        attention='rotary',
        attention_windows=tuple(None if everywhere else local_window for everywhere in is_global),
        rope_thetas=tuple(global_theta if everywhere else local_theta for everywhere in is_global),
        feedforward='gated',
        residual='pre',
        first_norm=False,
        biases=False,
        scaled_output_init=True,
        pooler=False,
    )


BUILDERS = {
    'modernbert': modernbert,
    'modernbert_base': modernbert,
    'modernbert_large': functools.partial(
        modernbert, hidden_size=1024, num_layers=28, intermediate_size=2624
    ),
}
