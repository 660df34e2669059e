"""ModernBERT and other encoders without learned positions."""

from typing import Any

from bert_jax.models.architectures.builder import Builder


# ModernBERT (Warner et al. 2024, arXiv 2412.13663; AnswerDotAI/ModernBERT).
#
# Layers 0, global_every, 2 · global_every … attend to all positions, other layers only to positions
# at most local_window away. Each kind of layer has its own base of rotary wavelengths.
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
    family='modernbert',
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


# After MosaicBERT (Portes et al. 2023, arXiv 2312.17482).
#
# BERT with ALiBi and a gated feed-forward. No parameter depends on max_position_embeddings.
MOSAICBERT = Builder(
    sizes=dict(vocab_size=30528, attention_dropout=0.0),
    fixed=dict(positions='none', attention='alibi', feedforward='gated'),
)


# After NeoBERT (Le Breton et al. 2025, arXiv 2502.19587).
#
# RMSNorm, SwiGLU, rotary attention, 28 layers. The published code rotates feature pairs 2k and
# 2k + 1, this code k and k + K/2: the same function with permuted query and key features.
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

BUILDERS = {
    'modernbert': MODERNBERT,
    'modernbert_base': MODERNBERT,
    'modernbert_large': MODERNBERT.resized(hidden_size=1024, num_layers=28, intermediate_size=2624),
    'mosaicbert': MOSAICBERT,
    'mosaicbert_base': MOSAICBERT,
    'mosaicbert_large': MOSAICBERT.resized(num_layers=24, hidden_size=1024),
    'neobert': NEOBERT,
}
