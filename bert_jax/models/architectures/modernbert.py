"""ModernBERT and other encoders without learned positions."""

from bert_jax.models.architecture_parts import (
    NO_BIASES,
    Alibi,
    Biases,
    Classifier,
    NoPositions,
    Norms,
    Prediction,
    Rotary,
)
from bert_jax.models.architectures.builder import Builder

# ModernBERT (Warner et al. 2024, arXiv 2412.13663; AnswerDotAI/ModernBERT).
#
# Every third layer attends to all positions, other layers only to positions at most 64 away. Each
# kind of layer has its own base of rotary wavelengths.
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
        windows=(None, 64, 64),
    ),
    fixed=dict(
        type_vocab_size=0,
        positions=NoPositions(),
        attention=Rotary(theta=160_000.0, local_theta=10_000.0),
        feedforward='gated',
        norms=Norms('unbiased_layer_norm', 'pre_except_first'),
        biases=NO_BIASES,
        scaled_output_init=True,
        pooler=False,
        prediction=Prediction('gelu'),
        classifier=Classifier('dense_norm', 'gelu', pooling='mean', dropout=0.0),
    ),
)

# Ettin's encoders (Weller et al. 2025, arXiv 2507.11412): ModernBERT in six sizes.
_ETTIN = {
    'ettin_17m': dict(num_layers=7, hidden_size=256, intermediate_size=384),
    'ettin_32m': dict(num_layers=10, hidden_size=384, intermediate_size=576),
    'ettin_68m': dict(num_layers=19, hidden_size=512, intermediate_size=768),
    'ettin_150m': {},
    'ettin_400m': dict(num_layers=28, hidden_size=1024, intermediate_size=2624),
    'ettin_1b': dict(num_layers=28, hidden_size=1792, intermediate_size=3840),
}

# ModernBERT for causal models, as Ettin's decoders (Weller et al. 2025, arXiv 2507.11412): a layer
# with a window sees positions less than 64 away, and rotates them as the other layers do. Texts are
# classified by the last token, without a bias.
MODERNBERT_DECODER = MODERNBERT.resized(
    'modernbert-decoder',
    windows=(None, 63, 63),
    **{
        'attention.local_theta': 160_000.0,
        'classifier.pooling': 'last',
        'classifier.bias': False,
    },
)


# After MosaicBERT (Portes et al. 2023, arXiv 2312.17482).
#
# BERT with ALiBi and a gated feed-forward. No parameter depends on max_position_embeddings.
MOSAICBERT = Builder(
    sizes=dict(vocab_size=30528, attention_dropout=0.0),
    fixed=dict(
        positions=NoPositions(),
        attention=Alibi(),
        feedforward='gated',
        biases=Biases(feed_forward='output'),
    ),
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
    ),
    fixed=dict(
        type_vocab_size=0,
        positions=NoPositions(),
        attention=Rotary(),
        feedforward='gated',
        norms=Norms('rms_norm', 'pre', embeddings=False),
        biases=NO_BIASES,
        pooler=False,
        classifier=Classifier('dropout_dense', pooling='first'),
    ),
)

# BERT with rotary positions and gated feed-forward, for embeddings of long texts: Nomic's (Nussbaum
# et al. 2024, arXiv 2402.01613) and GTE (Zhang et al. 2024, arXiv 2407.19669). Jina's version 3
# (Sturua et al. 2024, arXiv 2409.10173) is XLM-R with rotary positions.
NOMIC_BERT = Builder(
    family='nomic_bert',
    sizes=dict(
        vocab_size=30528,
        max_position_embeddings=2048,
        hidden_act='silu',
        hidden_dropout=0.0,
        attention_dropout=0.0,
        attention=Rotary(theta=1000.0),
    ),
    fixed=dict(
        positions=NoPositions(),
        feedforward='gated',
        biases=Biases(attention='none', feed_forward='none'),
    ),
)
GTE = Builder(
    family='gte',
    sizes=dict(
        vocab_size=250_048,
        max_position_embeddings=8192,
        type_vocab_size=1,
        attention_dropout=0.0,
        attention=Rotary(theta=160_000.0),
    ),
    fixed=dict(
        positions=NoPositions(),
        feedforward='gated',
        biases=Biases(feed_forward='output'),
        prediction=Prediction('gelu'),
    ),
)
JINA_V3 = Builder(
    family='jina_embeddings_v3',
    sizes=dict(
        vocab_size=250_002,
        hidden_size=1024,
        num_layers=24,
        max_position_embeddings=8194,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pooler=False,
        attention=Rotary(theta=20_000.0),
    ),
    fixed=dict(
        positions=NoPositions(),
        prediction=Prediction('gelu'),
        classifier=Classifier('dropout_dense', 'tanh', pooling='first'),
    ),
)

# RoFormer (Su et al. 2021, arXiv 2104.09864): BERT with rotary positions.
ROFORMER = Builder(
    family='roformer',
    sizes=dict(vocab_size=50_000, max_position_embeddings=1536, pooler=False),
    fixed=dict(
        positions=NoPositions(),
        attention=Rotary(),
        classifier=Classifier('dropout_dense', 'gelu', pooling='first'),
    ),
)

# Rotary positions, norms before, gated feed-forward and no biases, in which every part can be
# changed: the start of recipes that follow no published model.
ROTARY_PRENORM = Builder(
    sizes=dict(
        hidden_dropout=0.0,
        attention_dropout=0.0,
        layer_norm_eps=1e-5,
        type_vocab_size=0,
        positions=NoPositions(),
        attention=Rotary(),
        feedforward='gated',
        norms=Norms('unbiased_layer_norm', 'pre_except_first'),
        biases=NO_BIASES,
        scaled_output_init=True,
        pooler=False,
        prediction=Prediction('gelu'),
        classifier=Classifier('dense_norm', 'gelu', pooling='mean', dropout=0.0),
    ),
)

BUILDERS = {
    'modernbert': MODERNBERT,
    'modernbert_base': MODERNBERT,
    'modernbert_large': MODERNBERT.resized(hidden_size=1024, num_layers=28, intermediate_size=2624),
    **{name: MODERNBERT.resized(**sizes) for name, sizes in _ETTIN.items()},
    'modernbert_decoder': MODERNBERT_DECODER,
    'mosaicbert': MOSAICBERT,
    'mosaicbert_base': MOSAICBERT,
    'mosaicbert_large': MOSAICBERT.resized(num_layers=24, hidden_size=1024),
    'neobert': NEOBERT,
    'nomic_bert': NOMIC_BERT,
    'gte': GTE,
    'jina_v3': JINA_V3,
    'roformer': ROFORMER,
    'rotary_prenorm': ROTARY_PRENORM,
}
