"""Vectors that fit: what shortened, int8 and binary vectors lose in a search, and their memory."""

import dataclasses
import itertools

import numpy as np

from bert_jax.analyze.base import Analysis, AnalyzedModel, Results
from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.inference.compact_vectors import PRECISIONS, CompactVectors
from bert_jax.inference.nearest import Nearest
from bert_jax.inference.vector_search import TextEncoder, VectorSearch
from bert_jax.labels import nano_beir
from bert_jax.labels.retrieval_sets import RetrievalSet
from bert_jax.metrics import retrieval
from bert_jax.metrics.scores import Table

_TOP = 10
_COLUMNS = ('dimensions', 'precision', 'bytes', 'memory', f'recall@{_TOP}', retrieval.MAIN)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorSizes(Analysis):
    """Memory, recall of the float32 results, and nDCG of smaller vectors."""

    description = 'What a search with shortened, int8 and binary vectors finds, and their memory'
    limits = (
        'Recall is that of the results of float32 vectors of the full size, right or wrong.',
        'The float32 vectors of the candidates are read from the disk, which takes no memory but '
        'time.',
    )

    input: tuple[str, ...] = flag(
        "folder in BEIR's layout or of NanoBEIR; may be repeated", form='repeated'
    )
    split: str = flag('judgments to use, a file in qrels/; not of NanoBEIR', 'test')
    dimensions: tuple[int, ...] = flag(
        'sizes to which vectors are shortened, beside the full size; may be repeated',
        (),
        '[1, inf)',
        form='repeated',
    )
    rescored: int = flag(
        f'this many times {_TOP} documents are scored again with float32 vectors', 4, '[1, inf)'
    )

    def run(self, model: AnalyzedModel) -> Results:
        """See `Analysis.run`."""
        if model.predictor.is_late or model.predictor.is_sparse:
            raise UserError(f'{model.name} does not make one dense vector for each text')
        rows: dict[tuple[int, str], list[tuple[float, ...]]] = {}
        sets = [one for folder in self.input for one in nano_beir.read_any(folder, self.split)]
        for one in sets:
            model.stage(one.name)
            for key, values in self._of_set(model, one).items():
                rows.setdefault(key, []).append(values)
        means = {key: np.mean(values, axis=0) for key, values in rows.items()}
        full = max(size for size, _ in means)
        table = [
            (size, precision, round(float(own[0]), 1), float(own[0]) / (4 * full), *own[1:])
            for (size, precision), own in means.items()
        ]
        return Results(
            values={'rows': [dict(zip(_COLUMNS, row, strict=True)) for row in table]},
            tables={'Vector sizes': Table(_COLUMNS, table)},
            notes=[
                f'{len(sets)} sets, {sum(len(one.queries) for one in sets):,} queries, '
                f'{sum(len(one.documents) for one in sets):,} documents.',
                f'bytes: of a vector in memory. memory: the share of {full} float32 numbers. '
                f'recall@{_TOP}: of the results of these, after {self.rescored} × {_TOP} '
                'candidates are scored again.',
            ],
        )

    def _of_set(
        self, model: AnalyzedModel, one: RetrievalSet
    ) -> dict[tuple[int, str], tuple[float, ...]]:
        """Return bytes of a vector, recall and nDCG of each size and precision."""
        names = sorted(one.documents, reverse=True)  # the order of equal scores in trec_eval
        texts, queries = [one.documents[name] for name in names], list(one.queries.values())
        found: dict[tuple[int, str], tuple[float, ...]] = {}
        whole: Nearest | None = None
        for size, precision in itertools.product((None, *self.dimensions), PRECISIONS):
            encoder = TextEncoder(
                model.predictor, dimensions=size, precision=precision, rescored=self.rescored
            )
            if precision == PRECISIONS[0]:
                vectors_ND = encoder.encode_documents(texts)
            nearest = VectorSearch(encoder, vectors_ND).search(queries, _TOP)
            whole = nearest if whole is None else whole
            memory = vectors_ND.nbytes
            if precision != PRECISIONS[0]:
                memory = CompactVectors.of(vectors_ND, precision).nbytes
            key = (vectors_ND.shape[1], precision)
            found[key] = (memory / len(texts), _recall(nearest, whole), _ndcg(nearest, one, names))
        return found


def _recall(found: Nearest, expected: Nearest) -> float:
    """Return the share of expected documents that were found."""
    pairs = zip(found.documents_QK, expected.documents_QK, strict=True)
    return float(np.mean([np.isin(other, own).mean() for own, other in pairs]))


def _ndcg(found: Nearest, one: RetrievalSet, names: list[str]) -> float:
    rankings = {
        query: {names[n]: float(s) for n, s in zip(documents_K, scores_K, strict=True)}
        for query, scores_K, documents_K in zip(one.queries, *found, strict=True)
    }
    return retrieval.evaluate(rankings, one.relevance).means()[retrieval.MAIN]
