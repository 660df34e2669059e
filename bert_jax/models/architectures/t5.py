"""T5, an encoder–decoder with relative positions."""

from bert_jax.models.architecture_parts import (
    NO_BIASES,
    Classifier,
    DecoderStack,
    NoPositions,
    Norms,
    Prediction,
    RelativeBias,
)
from bert_jax.models.architectures.builder import Builder

# T5 version 1.1 (Raffel et al. 2020, arXiv 1910.10683; t5/models/gin and the released checkpoints
# of google-research/text-to-text-transfer-transformer).
#
# No biases, RMSNorm before the layers, gated GELU, a separate matrix that predicts tokens. Heads
# have 64 features whatever the hidden size, and pretraining has no dropout.
T5 = Builder(
    family='t5',
    sizes=dict(
        vocab_size=32128,
        hidden_size=512,
        num_layers=8,
        num_heads=6,
        intermediate_size=1024,
        decoder=DecoderStack(8, start='pad'),
        size_per_head=64,
        hidden_act='gelu_tanh',
        layer_norm_eps=1e-6,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    ),
    fixed=dict(
        type_vocab_size=0,
        positions=NoPositions(),
        attention=RelativeBias(),
        feedforward='gated',
        norms=Norms('rms_norm', 'pre', embeddings=False),
        biases=NO_BIASES,
        fan_in_init=True,
        output_dropout=True,
        pooler=False,
        prediction=Prediction(transform=False, bias=False, tied=False),
        classifier=Classifier(pooling='first'),
    ),
)

# T5 version 1.0: ReLU, tokens are predicted by the token embeddings from states · 1/√D.
T5_1_0 = Builder(
    family='t5',
    sizes={
        **T5.sizes,
        'num_layers': 6,
        'num_heads': 8,
        'intermediate_size': 2048,
        'decoder': DecoderStack(6, start='pad'),
        'hidden_act': 'relu',
        'hidden_dropout': 0.1,
        'attention_dropout': 0.1,
        'feedforward_dropout': 0.1,
    },
    fixed={
        **T5.fixed,
        'feedforward': 'dense',
        'prediction': Prediction(transform=False, bias=False, scaled=True),
    },
)


def _sized(builder: Builder, layers: int, width: int, heads: int, inner: int) -> Builder:
    return builder.resized(
        num_layers=layers,
        decoder=DecoderStack(layers, start='pad'),
        hidden_size=width,
        num_heads=heads,
        intermediate_size=inner,
    )


BUILDERS = {
    't5': T5,
    't5_small': T5,
    't5_base': _sized(T5, 12, 768, 12, 2048),
    't5_large': _sized(T5, 24, 1024, 16, 2816),
    't5_1_0': T5_1_0,
    't5_1_0_small': T5_1_0,
    't5_1_0_base': _sized(T5_1_0, 12, 768, 12, 3072),
    't5_1_0_large': _sized(T5_1_0, 24, 1024, 16, 4096),
}
