"""DistilBERT (Sanh et al. 2019, arXiv 1910.01108): 6 layers, no token types, no pooler."""

from bert_jax.models.architectures.builder import Builder

DISTILBERT = Builder(
    sizes=dict(num_layers=6, classifier_dropout=0.2),
    fixed=dict(
        type_vocab_size=0, pooler=False, pooling='first', classifier='dense', classifier_act='relu'
    ),
)

BUILDERS = {
    'distilbert': DISTILBERT,
    'distilbert_base': DISTILBERT,
    'distilbert_base_cased': DISTILBERT.resized(vocab_size=28996),
    'distilbert_base_multilingual': DISTILBERT.resized(vocab_size=119_547),
}
