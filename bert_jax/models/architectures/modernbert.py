"""ModernBERT (Warner et al. 2024, arXiv 2412.13663; AnswerDotAI/ModernBERT).

Layers 0, global_every, 2 · global_every … attend to all positions, other layers only to positions
at most local_window away. Each kind of layer has its own base of rotary wavelengths.
"""

from typing import Any

from bert_jax.models.architectures.builder import Builder


def _per_layer(
    num_layers: int,
    local_window: int,
    global_every: int,
    local_theta: float,
    global_theta: float,
    **_: object,
) -> dict[str, Any]:
    global_layers = [number % global_every == 0 for number in range(num_layers)]
    return dict(
        attention_windows=tuple(None if is_global else local_window for is_global in global_layers),
        rope_thetas=tuple(
            global_theta if is_global else local_theta for is_global in global_layers
        ),
    )


MODERNBERT = Builder(
    sizes=dict(
        vocab_size=50368,
        num_layers=22,
        intermediate_size=1152,
        max_position_embeddings=8192,
        layer_norm_eps=1e-5,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        prediction_act='gelu',
        pooling='mean',
        classifier_act='gelu',
        classifier_dropout=0.0,
        local_window=64,
        global_every=3,
        local_theta=10_000.0,
        global_theta=160_000.0,
    ),
    fixed=dict(
        type_vocab_size=0,
        positions='none',
        attention='rotary',
        feedforward='gated',
        residual='pre',
        first_norm=False,
        biases=False,
        scaled_output_init=True,
        pooler=False,
        classifier='dense_norm',
    ),
    derive=_per_layer,
)

BUILDERS = {
    'modernbert': MODERNBERT,
    'modernbert_base': MODERNBERT,
    'modernbert_large': MODERNBERT.resized(hidden_size=1024, num_layers=28, intermediate_size=2624),
}
