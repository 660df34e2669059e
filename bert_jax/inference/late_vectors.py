"""Vectors of the tokens of texts, for late interaction."""

from collections.abc import Sequence

import numpy as np
from scipy.cluster import hierarchy
from scipy.spatial import distance

from bert_jax.errors import UserError, unknown
from bert_jax.inference import computation
from bert_jax.inference.batching import TokenizedText
from bert_jax.inference.engine import Engine
from bert_jax.inference.text_rows import check_texts
from bert_jax.loaded.sentence_modules import SentenceModules
from bert_jax.models.late_interaction import LateInteraction
from bert_jax.tokenizers.late_layout import LateLayout, LateText
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout

SIDES = ('query', 'document')
_TEXTS = 256  # texts whose states are in memory at a time


def embed_late(engine: Engine, texts: Sequence[str], prompt: str = 'document') -> list[np.ndarray]:
    """See `Predictor.embed_late`."""
    modules = modules_of(engine)
    if prompt not in SIDES:
        raise unknown('prompt of late interaction', prompt, SIDES)
    assert modules.late is not None
    is_query = prompt == 'query'
    before = modules.prompts.get(prompt, '')
    layout = LateLayout(
        modules.late,
        SpecialTokenLayout(
            engine.tokenizer, engine.max_length, engine.architecture.type_vocab_size
        ),
    )
    prompted = [before + text for text in check_texts(texts)]
    flat, lengths = engine.tokenizer.encode_ids(prompted, special=True)
    encoded = np.split(flat, np.cumsum(lengths))[:-1]
    laid_out = [layout.lay_out(ids, is_query) for ids in encoded]
    action = f'texts truncated to {layout.longest(is_query)} tokens'
    engine.counts[action] += sum(text.is_truncated for text in laid_out)
    vectors: list[np.ndarray] = []
    for first in range(0, len(laid_out), _TEXTS):
        found = _vectors(engine, modules, laid_out[first : first + _TEXTS])
        vectors += found if is_query else (pool(own_TE, modules.late) for own_TE in found)
    return vectors


def _vectors(
    engine: Engine, modules: SentenceModules, texts: Sequence[LateText]
) -> list[np.ndarray]:
    """Compute the vectors of the tokens of texts, without pooling."""
    rows = [
        [TokenizedText(text.ids, {'attended': np.array([text.num_attended])})] for text in texts
    ]
    states = engine.run(computation.late, rows=rows)
    return [
        np.asarray(modules.apply(states_TD[: len(text.ids)][text.has_vector]), np.float32)
        for text, ((_, states_TD),) in zip(texts, states, strict=True)
    ]


def modules_of(engine: Engine) -> SentenceModules:
    """Return the modules of a model for late interaction.

    Raises:
        UserError: the model has one vector for each text, or a module that is not supported.
    """
    modules = engine.sentence_modules
    if modules is None or modules.late is None:
        raise UserError(
            f'{engine.name} was not trained for late interaction; train it with '
            '--config=configs/finetune.py:late_interaction, or use embed'
        )
    if modules.unsupported:
        raise UserError(
            f'{engine.name}: modules.json has {modules.unsupported}, which is not supported'
        )
    return modules


def pool(vectors_TE: np.ndarray, late: LateInteraction) -> np.ndarray:
    """Replace the vectors of a document by the means of clusters, float32.

    Clusters are those of Ward's method on cosine distances; the first `protected_tokens` vectors
    stay as they are (Clavié et al. 2024, "Reducing the footprint of multi-vector retrieval").
    """
    if late.pool_factor <= 1:
        return vectors_TE
    kept_TE, rest_TE = vectors_TE[: late.protected_tokens], vectors_TE[late.protected_tokens :]
    number = max(int(len(rest_TE) // late.pool_factor), 1)
    if number < len(rest_TE):
        cosine_TT = np.clip(1 - rest_TE @ rest_TE.T, 0, 2)
        condensed = distance.squareform(cosine_TT, checks=False)
        cluster_T = hierarchy.fcluster(
            hierarchy.linkage(condensed, method='ward'), t=number, criterion='maxclust'
        )
        _, cluster_T = np.unique(cluster_T, return_inverse=True)
        sums = np.zeros((cluster_T.max() + 1, rest_TE.shape[1]), np.float32)
        np.add.at(sums, cluster_T, rest_TE)
        rest_TE = sums / np.bincount(cluster_T)[:, None].astype(np.float32)
    pooled_TE = np.concatenate([kept_TE, rest_TE])
    if not late.normalizes_pooled:
        return pooled_TE
    norms_T1 = np.linalg.norm(pooled_TE, axis=-1, keepdims=True)
    return np.asarray(pooled_TE / np.maximum(norms_T1, np.float32(1e-12)))
