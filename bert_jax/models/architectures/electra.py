"""ELECTRA (Clark et al. 2020, arXiv 2003.10555; google-research/electra).

BERT without a pooler. Embeddings are projected if their size differs from hidden_size. Generators
have a smaller hidden_size and fewer heads, but the discriminator's embeddings.
"""

from bert_jax.models.architectures.builder import Builder


def _projection(embedding_size: int, hidden_size: int, **_: object) -> dict[str, int | None]:
    return dict(embedding_size=None if embedding_size == hidden_size else embedding_size)


ELECTRA = Builder(
    sizes=dict(embedding_size=768),
    fixed=dict(
        pooler=False,
        prediction_act='gelu',
        pooling='first',
        classifier='dropout_dense',
        classifier_act='gelu',
    ),
    derive=_projection,
)
_LARGE = dict(embedding_size=1024, num_layers=24)

BUILDERS = {
    'electra': ELECTRA,
    'electra_small': ELECTRA.resized(embedding_size=128, hidden_size=256),
    'electra_small_generator': ELECTRA.resized(embedding_size=128, hidden_size=256),
    'electra_base': ELECTRA,
    'electra_base_generator': ELECTRA.resized(hidden_size=256),
    'electra_large': ELECTRA.resized(hidden_size=1024, **_LARGE),
    'electra_large_generator': ELECTRA.resized(hidden_size=256, **_LARGE),
}
