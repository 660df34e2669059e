"""Models for MTEB 2: `mteb.evaluate(MTEBModel('runs/late'), mteb.get_tasks(...))`.

Models with vectors, of late interaction and rerankers search; dense vectors also answer the other
tasks of texts. mteb is not needed to import this module.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import bert_jax
from bert_jax.errors import UserError
from bert_jax.inference import encoders, nearest, reranking, vector_search


class MTEBModel:
    """A model with the methods of mteb's `SearchProtocol` and `EncoderProtocol`."""

    def __init__(
        self, model_name: str, revision: str | None = None, *, device: Any = None, **options: Any
    ) -> None:
        """Load a model.

        Args:
            model_name: anything that `bert_jax.load` loads.
            revision, device: passed by mteb, without effect.
            options: of `bert_jax.load`.
        """
        self.model = bert_jax.load(model_name, **options)
        self._ids: Sequence[str] = ()
        self._texts: Sequence[str] = ()
        self._index: encoders.Index | None = None

    def index(self, corpus: Any, **arguments: Any) -> None:
        """Encode documents, rows with 'id', 'text' and perhaps 'title'."""
        self._ids = [str(row['id']) for row in corpus]
        self._texts = [f'{row.get("title") or ""} {row["text"]}'.strip() for row in corpus]
        if 'rerank' not in self.model.tasks:
            encoder = encoders.of_model(self.model)
            self._index = encoder.index(encoder.encode_documents(self._texts))

    def search(
        self,
        queries: Any,
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **arguments: Any,
    ) -> dict[str, dict[str, float]]:
        """Return the scores of the best documents of each query, by their ids.

        Raises:
            UserError: a reranker has no candidates.
        """
        texts = {str(row['id']): str(row['text']) for row in queries}
        if top_ranked is not None:
            return {query: self._rank(text, top_ranked[query]) for query, text in texts.items()}
        if self._index is None:
            raise UserError(f'{self.model.name} is a reranker; choose a task of reranking')
        found = self._index.search([*texts.values()], top_k)
        return {
            query: {self._ids[n]: float(s) for n, s in zip(documents_K, scores_K, strict=True)}
            for query, scores_K, documents_K in zip(texts, *found, strict=True)
        }

    def _rank(self, query: str, candidates: Sequence[str]) -> dict[str, float]:
        """Return the scores of the candidates of a query."""
        numbers = {name: number for number, name in enumerate(self._ids)}
        places_1C = np.array([[numbers[str(name)] for name in candidates]])
        scorer = self._index or reranking.PairScorer(self.model, self._texts)
        scores_C = scorer.score_candidates([query], places_1C)[0]
        return dict(zip(map(str, candidates), scores_C.tolist(), strict=True))

    def encode(
        self, inputs: Iterable[Mapping[str, Any]], *, prompt_type: Any = None, **arguments: Any
    ) -> np.ndarray:
        """Return the vectors of texts, float32 [N, D], given as batches with the key 'text'."""
        texts = [text for batch in inputs for text in batch['text']]
        sides = {'query': vector_search.QUERY, 'document': vector_search.DOCUMENT}
        names = sides.get(getattr(prompt_type, 'value', prompt_type) or '', ())
        prompt = vector_search.known_prompt(self.model, names)
        return self.model.embed(texts, prompt=prompt)

    def similarity(self, first: Any, second: Any) -> np.ndarray:
        """Return the similarity of all pairs of vectors, [M, N]."""
        units = [self._comparable(vectors) for vectors in (first, second)]
        return np.asarray(units[0] @ units[1].T)

    def similarity_pairwise(self, first: Any, second: Any) -> np.ndarray:
        """Return the similarity of the vectors of each pair, [N]."""
        units = [self._comparable(vectors) for vectors in (first, second)]
        return np.asarray(np.sum(units[0] * units[1], axis=-1))

    def _comparable(self, vectors: Any) -> np.ndarray:
        """Return vectors whose products are the similarity of the model."""
        vectors_ND = np.atleast_2d(np.asarray(vectors, np.float32))
        return nearest.normalize(vectors_ND) if self.model.compared_by == 'cosine' else vectors_ND

    @property
    def mteb_model_meta(self) -> Any:
        """What mteb records about a model."""
        from mteb.models import ModelMeta

        name = os.path.basename(os.path.normpath(self.model.name))
        return ModelMeta.create_empty({'name': f'bert_jax/{name}'})
