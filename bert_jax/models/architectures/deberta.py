"""DeBERTa v1 and v2 (He et al. 2021, arXiv 2006.03654) and v3 (arXiv 2111.09543).

As in microsoft/DeBERTa. The published masked language models also have positions='mask_decoder',
which adds a table of absolute positions; parameter counts in the papers and in transformers exclude
it.
"""

from bert_jax.models.architecture_parts import (
    Biases,
    Classifier,
    ConvolutionOptions,
    Disentangled,
    NoPositions,
)
from bert_jax.models.architectures.builder import Builder

_SIZES = dict(
    type_vocab_size=0,
    layer_norm_eps=1e-7,
    positions=NoPositions(),
)
_FIXED = dict(
    attention=Disentangled(),
    embedding_mask=True,
    pooler=False,
    classifier=Classifier('dense', 'gelu', pooling='first'),
    detection_context=True,
)
DEBERTA = Builder(
    family='deberta',
    sizes=_SIZES | dict(vocab_size=50265),
    fixed=_FIXED | dict(biases=Biases(attention='without_key')),
)
DEBERTA_V2 = Builder(
    family='deberta-v2',
    sizes=_SIZES | dict(vocab_size=128100),
    fixed=_FIXED | dict(attention=Disentangled(buckets=256, shared_projections=True, norm=True)),
)
_XLARGE = dict(hidden_size=1536, convolution=ConvolutionOptions(3))

BUILDERS = {
    'deberta': DEBERTA,
    'deberta_base': DEBERTA,
    'deberta_large': DEBERTA.resized(hidden_size=1024, num_layers=24),
    'deberta_xlarge': DEBERTA.resized(hidden_size=1024, num_layers=48),
    'deberta_v2': DEBERTA_V2,
    'deberta_v2_xlarge': DEBERTA_V2.resized(**_XLARGE, num_layers=24),
    'deberta_v2_xxlarge': DEBERTA_V2.resized(**_XLARGE, num_layers=48),
    'deberta_v3_xsmall': DEBERTA_V2.resized(hidden_size=384),
    'deberta_v3_small': DEBERTA_V2.resized(num_layers=6),
    'deberta_v3_base': DEBERTA_V2,
    'deberta_v3_large': DEBERTA_V2.resized(hidden_size=1024, num_layers=24),
    'mdeberta_v3_base': DEBERTA_V2.resized(vocab_size=251000),
}
