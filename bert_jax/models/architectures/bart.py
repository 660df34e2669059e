"""BART and mBART, encoder–decoders."""

from bert_jax.models.architecture_parts import (
    Classifier,
    DecoderStack,
    Norms,
    OffsetPositions,
    Prediction,
)
from bert_jax.models.architectures.builder import Builder

# BART (Lewis et al. 2020, arXiv 1910.13461; facebookresearch/fairseq, models/bart).
#
# Norms after the layers; three token tables are one. The first two rows of each position table are
# not used. Tokens are predicted by the token embeddings and a constant bias, which is zero in all
# published weights. A text is classified by the decoder's state at its last token.
BART = Builder(
    family='bart',
    sizes=dict(
        vocab_size=50265,
        num_layers=6,
        decoder=DecoderStack(6),
        max_position_embeddings=1026,
        layer_norm_eps=1e-5,
    ),
    fixed=dict(
        type_vocab_size=0,
        positions=OffsetPositions(counts_padding=True),
        pooler=False,
        prediction=Prediction(transform=False, fixed_bias=True),
        classifier=Classifier('dropout_dense', pooling='last', dropout=0.0),
    ),
)

# mBART (Liu et al. 2020, arXiv 2001.08210).
#
# Norms before the layers, one more after each stack; embeddings are multiplied by √1024. A target
# starts with the token of its language.
MBART = Builder(
    family='mbart',
    sizes=dict(
        vocab_size=250027,
        hidden_size=1024,
        num_layers=12,
        scaled_embeddings=True,
        decoder=DecoderStack(12, start='language'),
        max_position_embeddings=1026,
        layer_norm_eps=1e-5,
    ),
    fixed={
        **BART.fixed,
        'norms': Norms('layer_norm', 'pre'),
    },
)

BUILDERS = {
    'bart': BART,
    'bart_base': BART,
    'bart_large': BART.resized(hidden_size=1024, num_layers=12, decoder=DecoderStack(12)),
    'mbart': MBART,
}
