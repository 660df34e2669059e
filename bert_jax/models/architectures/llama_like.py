"""EuroBERT and EmbeddingGemma: layers of language models that attend in both directions."""

from bert_jax.models.architecture_parts import (
    NO_BIASES,
    Biases,
    Classifier,
    NoPositions,
    Norms,
    Prediction,
    Rotary,
)
from bert_jax.models.architectures.builder import Builder

_WITHOUT_TABLES = dict(type_vocab_size=0, positions=NoPositions(), pooler=False)
# Heads have biases, the layers do not.
_BIASES = Biases(NO_BIASES.attention, NO_BIASES.feed_forward)

# EuroBERT (Boizard et al. 2025, arXiv 2503.05500): Llama's layers. In the larger sizes three heads
# of queries share one of keys and values. Classifiers average the logits of all tokens.
EUROBERT = Builder(
    family='eurobert',
    sizes=dict(
        vocab_size=128_256,
        max_position_embeddings=8192,
        hidden_act='silu',
        layer_norm_eps=1e-5,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        attention=Rotary(theta=250_000.0),
    ),
    fixed=_WITHOUT_TABLES
    | dict(
        feedforward='gated',
        norms=Norms('rms_norm', 'pre', embeddings=False),
        biases=_BIASES,
        prediction=Prediction(tied=False, bias=False, transform=False),
        classifier=Classifier('dense', 'gelu', pooling='late', dropout=0.0),
    ),
)

# EmbeddingGemma (Schechter Vera et al. 2025, arXiv 2509.20354): Gemma 3 (arXiv 2503.19786) without
# causality. Five of six layers see 256 positions on each side. Trained for embeddings only: the
# parts of heads are ours.
EMBEDDING_GEMMA = Builder(
    family='gemma3_text',
    sizes=dict(
        vocab_size=262_144,
        hidden_size=768,
        num_layers=24,
        num_heads=3,
        kv_heads=1,
        size_per_head=256,
        intermediate_size=1152,
        max_position_embeddings=2048,
        hidden_act='gelu_tanh',
        layer_norm_eps=1e-6,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        windows=(256,) * 5 + (None,),
    ),
    fixed=_WITHOUT_TABLES
    | dict(
        attention=Rotary(1_000_000.0, local_theta=10_000.0, qk_norm=True),
        scaled_embeddings=True,
        feedforward='gated',
        norms=Norms('centered_rms_norm', 'both', embeddings=False),
        biases=_BIASES,
        prediction=Prediction(bias=False, transform=False),
        classifier=Classifier('linear', pooling='mean'),
    ),
)

BUILDERS = {
    'eurobert': EUROBERT,
    'eurobert_210m': EUROBERT,
    'eurobert_610m': EUROBERT.resized(
        hidden_size=1152, num_layers=26, num_heads=18, kv_heads=6, intermediate_size=4096
    ),
    'eurobert_2.1b': EUROBERT.resized(
        hidden_size=2304, num_layers=32, num_heads=18, kv_heads=6, intermediate_size=6144
    ),
    'embedding_gemma': EMBEDDING_GEMMA,
}
