"""Retrieval: how well the vectors of a model find the documents that answer a query."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from bert_jax.analyze.base import Analysis, AnalyzedModel, Results
from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.inference import reranking, vector_search
from bert_jax.inference.encoders import Searcher
from bert_jax.inference.late_search import LateEncoder
from bert_jax.inference.lexical import BM25
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.reranking import TwoStages
from bert_jax.inference.sparse_vectors import SparseSearch, mean_active
from bert_jax.labels import nano_beir
from bert_jax.labels.retrieval_sets import RetrievalSet
from bert_jax.metrics import intervals, retrieval
from bert_jax.metrics.retrieval import QueryMetrics, Ranking
from bert_jax.metrics.scores import Table
from bert_jax.types import JsonObject

_SHOWN = (retrieval.MAIN, 'recall@100', 'mrr@10', 'map')  # in the table
# Keys of the results → names in the table.
_SYSTEMS = {
    'model': 'model',
    'reranked': 'reranked',
    'bm25': 'BM25',
    'difference': 'model − BM25',
}
_NOTES = (
    'nDCG, MRR, recall and average precision are those of trec_eval: the gain is the relevance, '
    'and documents of equal score are ordered by id, descending.',
    'BM25 is in the form of Lucene (k1 1.2, b 0.75), on words in lower case, all of them and not '
    'stemmed.',
    'Intervals: 95 %, bootstrap over queries; that of the difference is paired.',
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Retrieval(Analysis):
    """nDCG and other metrics of the model and of BM25 on test sets in BEIR's layout."""

    description = 'How well the vectors of texts find the documents that answer a query'
    limits = (
        'Documents that nobody judged count as not relevant, though some may be.',
        'A model that was trained on the queries or documents of a test set scores too high on it.',
    )

    input: tuple[str, ...] = flag(
        'folder with corpus.jsonl, queries.jsonl and qrels/, or of NanoBEIR with Parquet files in '
        'corpus/, queries/ and qrels/, all of whose sets are used; may be repeated',
        form='repeated',
    )
    split: str = flag('judgments to use, a file in qrels/; not of NanoBEIR', 'test')
    depth: int = flag('results of each query', 1000, '[10, inf)')
    similarity: str | None = flag(
        'cosine or dot (product); default: as the run or the sentence-transformers folder says, '
        'else cosine, and dot for sparse vectors',
        None,
        choices=tuple(vector_search.SIMILARITIES),
    )
    sparse: bool = flag(
        'compare weights of terms by their product, as SPLADE does; needs a head that predicts '
        'masked tokens',
        False,
    )
    pooling: str | None = flag(
        'mean, max or cls; default: mean, or that of a sentence-transformers folder', None
    )
    reranker: str = flag('folder of a reranker, which orders the first results anew', '')
    candidates: int = flag(
        'number of results that the reranker reads', 100, '[1, inf)', needs='reranker'
    )
    same_id: str = flag(
        'what happens to a document that has the id of the query: drop it from the results, as '
        'BEIR does where queries are documents too, or keep it',
        '',
        choices=('', 'drop', 'keep'),
    )

    def check(self) -> None:
        """Raise UserError for a flag that has no effect with --sparse."""
        if self.sparse and self.pooling:
            raise UserError('--pooling has no effect with --sparse; leave it out')

    def run(self, model: AnalyzedModel) -> Results:
        """See `Analysis.run`."""
        sets = [one for folder in self.input for one in nano_beir.read_any(folder, self.split)]
        for one in sets:
            self._check_ids(one)
        if len({one.name for one in sets}) < len(sets):
            raise UserError('two folders of --input have the same name; rename one')
        settings = {'dtype': self.dtype, 'batch_tokens': self.batch_tokens}
        reranker = reranking.load(self.reranker, **settings) if self.reranker else None
        found = {one.name: self._evaluate(model, reranker, one) for one in sets}
        if reranker:
            model.predictor.counts.update(reranking.counts_of(reranker))
        means = {
            system: float(
                np.mean([sides[system]['metrics'][retrieval.MAIN] for sides in found.values()])
            )
            for system in ('model', 'reranked', 'bm25')
            if all(system in sides for sides in found.values())
        }
        return Results(
            values={'split': self.split, 'sets': found, f'mean_{retrieval.MAIN}': means},
            tables={'Retrieval': _table(found, means)},
            notes=[
                *_NOTES,
                *{f'Vectors are compared by: {one["similarity"]}.' for one in found.values()},
                *_terms(found),
                *(f'{one.name}: {line}' for one in sets for line in one.report.lines()),
            ],
        )

    def _check_ids(self, one: RetrievalSet) -> None:
        """Raise UserError if it is not said what happens to documents with the id of a query."""
        shared = one.shared_ids
        if shared and not self.same_id:
            raise UserError(
                f'{one.name}: {len(shared):,} queries have the id of a document, such as '
                f'{shared[0]!r}; set --same_id=drop if the texts are the same, else --same_id=keep'
            )

    def _evaluate(
        self, model: AnalyzedModel, reranker: Predictor | None, one: RetrievalSet
    ) -> JsonObject:
        """Search with the model, with the model and a reranker, and with BM25."""
        names = sorted(one.documents, reverse=True)  # the order of equal scores in trec_eval
        texts = [one.documents[name] for name in names]
        model.stage(one.name)
        searcher: Searcher
        active = {}
        if self.sparse:
            searcher = SparseSearch.of(model.predictor, texts, self.similarity)
            similarity = searcher.encoder.compared_by
            queries_QV = searcher.encoder.encode_queries(list(one.queries.values()))
            weights = searcher.weights_NV, queries_QV
            active = dict(zip(('document', 'query'), map(mean_active, weights), strict=True))
        elif model.predictor.is_late and not self.pooling:
            encoder = LateEncoder(model.predictor)
            searcher = encoder.index(encoder.encode_documents(texts))
            similarity = encoder.compared_by
        else:
            options = self.similarity, self.pooling
            searcher = vector_search.of_texts(model.predictor, texts, *options)
            similarity = searcher.encoder.compared_by
        metrics = self._score(searcher, one, names)
        baseline = self._score(BM25.of(texts), one, names)
        difference = dataclasses.replace(metrics, values_QM=metrics.values_QM - baseline.values_QM)
        second = {}
        if reranker:
            model.stage(f'{one.name}, reranked')
            scorer = reranking.scorer_of(reranker, texts)
            reranked = TwoStages(searcher, scorer, self.candidates)
            second['reranked'] = _describe(self._score(reranked, one, names))
        return {
            'documents': len(texts),
            'queries': len(metrics.queries),
            'queries_without_relevant_documents': metrics.unanswerable,
            'similarity': similarity,
            'model': _describe(metrics),
            'bm25': _describe(baseline),
            'difference': _describe(difference),
            **second,
            **({'terms': active} if active else {}),
        }

    def _score(self, searcher: Searcher, one: RetrievalSet, names: Sequence[str]) -> QueryMetrics:
        """The metrics of a way to search; `names` are the ids of its documents."""
        drops = self.same_id == 'drop'
        found = searcher.search(list(one.queries.values()), self.depth + drops)
        rankings: dict[str, Ranking] = {}
        for query, scores_K, documents_K in zip(one.queries, *found, strict=True):
            ranking = {names[n]: float(s) for n, s in zip(documents_K, scores_K, strict=True)}
            kept = [name for name in ranking if not (drops and name == query)]
            rankings[query] = {name: ranking[name] for name in kept[: self.depth]}
        return retrieval.evaluate(rankings, one.relevance)


def _terms(found: Mapping[str, JsonObject]) -> list[str]:
    """How many terms texts have in each set."""
    return [
        f'{name}: on average {sides["terms"]["query"]:.1f} terms of a query and '
        f'{sides["terms"]["document"]:.1f} of a document have a weight.'
        for name, sides in found.items()
        if 'terms' in sides
    ]


def _describe(metrics: QueryMetrics) -> JsonObject:
    return {'metrics': metrics.means(), 'intervals': metrics.intervals()}


def _table(found: Mapping[str, JsonObject], means: Mapping[str, float]) -> Table:
    columns = ('set', 'queries', 'documents', '', *_SHOWN, f'95 % of {retrieval.MAIN}')
    rows = [
        (
            name,
            sides['queries'],
            sides['documents'],
            label,
            *(sides[system]['metrics'][metric] for metric in _SHOWN),
            intervals.cell(sides[system]['intervals'][retrieval.MAIN], sides['queries']),
        )
        for name, sides in found.items()
        for system, label in _SYSTEMS.items()
        if system in sides
    ]
    if len(found) > 1:
        empty = ('',) * (len(_SHOWN) - 1)
        names = means.items()
        rows += [('mean', '', '', _SYSTEMS[name], mean, *empty, '') for name, mean in names]
    return Table(columns, rows)
