"""The texts that are nearest to a query, and hard negatives among them."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from bert_jax.answers.base import Models, VectorFlags, Windows
from bert_jax.answers.input_rows import Fields, InputRow, texts_of
from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.interop import MODEL_HELP
from bert_jax.types import JsonObject, JsonRecord

if TYPE_CHECKING:
    from bert_jax.inference.encoders import VectorEncoder
    from bert_jax.inference.predictor import Predictor
    from bert_jax.inference.text_collection import TextCollection

# Flags without effect on vectors of tokens.
_NOT_LATE = ('similarity', 'long_texts', 'dimensions', 'rescored')
_WIDTH = 100  # characters of a text in the format text


@dataclasses.dataclass(frozen=True, kw_only=True)
class _AmongTexts(VectorFlags, Windows):
    """What is searched, and how vectors are compared."""

    method: ClassVar[str] = 'embed'

    model: str = flag(MODEL_HELP)
    tuned: str = ''
    documents: str = flag(
        'what is searched: a folder, whose files are the texts, or a file with a text a line or '
        'row (.csv, .tsv, .jsonl, .json, .parquet)',
        '',
    )
    column: str = flag('column of the texts in a table', 'text')
    vectors: str = flag(
        'folder for the vectors of the texts, which later searches use if model, texts and options '
        'are the same (default: vectors/ in the folder of the model)',
        '',
    )
    similarity: str | None = flag(
        'how vectors are compared: by their cosine, or by their product (dot); default: as the '
        'run or the sentence-transformers folder says, else cosine, and dot for sparse vectors',
        None,
        choices=('cosine', 'dot'),
    )
    pooling: str | None = flag(
        'mean, mean_sqrt_len_tokens or max of all tokens, cls ([CLS]) or lasttoken; default: mean, '
        'or the pooling, dense layers and normalization of a sentence-transformers folder',
        None,
    )
    precision: str | None = flag(
        'of the vectors that are compared: float32 (default), or int8 or binary, a quarter or a '
        'thirty-second of the memory; of vectors of tokens, which are kept so: float16 (default), '
        'float32 or int8',
        None,
        choices=('float32', 'float16', 'int8', 'binary'),
    )
    rescored: int | None = flag(
        'with --precision=int8 or binary: this many times the wanted texts are scored again with '
        'float32 vectors (default: 4)',
        None,
        '[1, inf)',
    )

    def check(self) -> None:
        if not self.documents:
            raise UserError(f'--task={self.task} needs --documents, a file or folder of texts')
        if self.rescored and self.precision not in ('int8', 'binary'):
            raise UserError('--rescored needs --precision=int8 or --precision=binary')
        super().check()

    @functools.cache  # noqa: B019  (a command answers one question)
    def encoder(self, model: 'Predictor') -> 'VectorEncoder':
        """Return what makes the vectors of texts."""
        from bert_jax.inference import compact_vectors, late_store  # imports JAX
        from bert_jax.inference.late_search import LateEncoder
        from bert_jax.inference.sparse_vectors import TermEncoder
        from bert_jax.inference.vector_search import TextEncoder

        if model.is_late and self.pooling is None:
            self._refuse(_NOT_LATE, 'makes a vector for each token')
            self._check_precision(late_store.PRECISIONS, 'vectors of tokens')
            return LateEncoder(model, self.precision or 'float16')
        if not model.is_sparse or self.pooling is not None:
            self._check_precision(compact_vectors.PRECISIONS, 'vectors of texts')
            return TextEncoder(
                model,
                self.similarity,
                self.pooling,
                self.long_texts,
                self.dimensions,
                self.precision or 'float32',
                self.rescored or TextEncoder.rescored,
            )
        self._refuse(('dimensions', 'precision', 'rescored'), 'makes sparse vectors')
        return TermEncoder(model, self.similarity, self.long_texts)

    def _check_precision(self, known: Sequence[str], what: str) -> None:
        """Raise UserError for a precision that such vectors do not have."""
        if self.precision and self.precision not in known:
            raise UserError(
                f'--precision={self.precision} is not for {what}; set it to one of '
                f'{", ".join(known)}'
            )

    def _refuse(self, names: Sequence[str], reason: str) -> None:
        """Raise UserError for flags that have no effect with the model."""
        given = [name for name in names if getattr(self, name) is not None]
        if given:
            raise UserError(f'--{given[0]} has no effect: {self.model} {reason}; leave it out')

    def start(self, model: 'Predictor') -> None:
        """Make the vectors of the texts that are searched."""
        self.collection(model)

    @functools.cache  # noqa: B019  (a command answers one question)
    def collection(self, model: 'Predictor') -> 'TextCollection':
        """Read the texts, and read or compute their vectors."""
        return self.open_collection(self.encoder(model))

    def open_collection(self, encoder: 'VectorEncoder') -> 'TextCollection':
        """Read the texts, and read or compute their vectors by an encoder."""
        from bert_jax.inference import text_collection

        options = text_collection.CollectionOptions(
            self.documents, self.column, self.encoding, self.vectors
        )
        return text_collection.open_collection(encoder, options)

    def origin(self, models: Models) -> JsonRecord:
        """See `Question.origin`; records also depend on the texts that are searched."""
        texts = [self.collection(model).digest for model in models.values()]
        return super().origin(models) | {f'the content of {self.documents}': texts}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Search(_AmongTexts):
    """The nearest texts of each query."""

    summary = 'the texts of --documents that are nearest to each query'
    reads = 'a query a line'
    writes = '{"query", "results": [{"id", "score", "text"}, ...]}, or text'

    top: int = flag('number of texts for each query', 5, '[1, inf)')
    first_stage: str = flag(
        'what finds the candidates that the model orders: bm25, or the folder of another model, '
        'whose vectors are kept in its folder; default: the model itself compares all texts',
        '',
    )
    reranker: str = flag(
        'folder of a model of any kind that orders the nearest texts anew; scores are then its '
        'own, the logits of a reranker',
        '',
    )
    candidates: int = flag(
        'number of nearest texts that are ordered anew, by the model after --first_stage and by '
        'the --reranker',
        100,
        '[1, inf)',
    )
    output_format: str = flag('jsonl, or text to read', 'jsonl', choices=('jsonl', 'text'))

    def check(self) -> None:
        super().check()
        orders = self.reranker or self.first_stage
        if orders and self.top > self.candidates:
            raise UserError(
                f'--top={self.top} is more than --candidates={self.candidates}, which are ordered '
                'anew; set --candidates to the same number or more'
            )
        if self.vectors and self.first_stage not in ('', 'bm25'):
            raise UserError(
                f'--vectors={self.vectors} is a folder for one model; with --first_stage='
                f'{self.first_stage} leave it out, so that each has its own'
            )
        if not orders and self.candidates != Search.candidates:
            raise UserError('--candidates needs --reranker or --first_stage')

    def start(self, model: 'Predictor') -> None:
        """Load the reranker, if there is one, before the vectors of the texts are made."""
        self.loaded_reranker()
        super().start(model)
        if self.first_stage:
            self.loaded_first(model)

    @functools.cache  # noqa: B019  (a command answers one question)
    def loaded_first(self, model: 'Predictor') -> 'TextCollection':
        """Return the texts with the search that finds the candidates."""
        from bert_jax.inference import encoders, reranking  # imports JAX

        if self.first_stage == 'bm25':
            return self.collection(model).with_words()
        settings = {'dtype': self.dtype, 'batch_tokens': self.batch_tokens}
        first = reranking.load_any(self.first_stage, **settings)
        return self.open_collection(encoders.of_model(first))

    @functools.cache  # noqa: B019  (a command answers one question)
    def loaded_reranker(self) -> 'Predictor | None':
        """Return the reranker; None without one."""
        from bert_jax.inference import reranking  # imports JAX

        settings = {'dtype': self.dtype, 'batch_tokens': self.batch_tokens}
        return reranking.load(self.reranker, **settings) if self.reranker else None

    def answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterator[JsonRecord]:
        from bert_jax.inference import reranking  # imports JAX

        collection, reranker = self.collection(model), self.loaded_reranker()
        queries = texts_of(rows)
        if self.first_stage:
            collection = collection.after(self.loaded_first(model).index, self.candidates)
        if reranker:
            collection = collection.reranked(reranker, self.candidates)
        for query, hits in zip(queries, collection.search(queries, self.top), strict=True):
            yield {'query': query, 'results': [hit._asdict() for hit in hits]}
        if reranker:
            model.counts.update(reranking.counts_of(reranker))
            reranker.counts.clear()

    def origin(self, models: Models) -> JsonRecord:
        """See `Question.origin`; the order also depends on the other models."""
        reranker = self.loaded_reranker()
        first = [self.loaded_first(one).digest for one in models.values() if self.first_stage]
        others = {'the reranker': reranker and reranker.fingerprint, 'the first stage': first}
        return super().origin(models) | others

    def to_text(self, record: JsonObject) -> str:
        """See `Question.to_text`; as text, a line for the query and one for each result."""
        if self.output_format == 'jsonl':
            return super().to_text(record)
        lines = [record['query']]
        for hit in record['results']:
            text = ' '.join(hit['text'].split())
            text = text if len(text) <= _WIDTH else f'{text[:_WIDTH]} …'
            lines.append(f'  {hit["score"]:.4f}  {hit["id"]}  {text}')
        return '\n'.join(lines) + '\n\n'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mine(_AmongTexts):
    """Hard negatives for training; see `MiningOptions`."""

    summary = (
        'hard negatives for training: the texts of --documents that are near a query, and none of '
        'its known answers'
    )
    reads = 'QUERY<tab>ANSWER... or {"query": "...", "positives": ["...", ...]} a line'
    writes = '{"query", "positive", "negatives", "scores"}'
    fields = Fields(('query',), list_name='positives')

    negatives: int = flag('number of negatives of a query, at most', 3, '[1, inf)')
    first_rank: int = flag(
        'first rank of a negative among the nearest texts that are not known answers; above 1 '
        'leaves out the likeliest answers that nobody marked',
        1,
        '[1, inf)',
    )
    last_rank: int = flag('last rank of a negative', 100, '[1, inf)')
    absolute_margin: float | None = flag(
        'negatives score at least so much less than the lowest known answer', None, '[0, inf)'
    )
    relative_margin: float | None = flag(
        'the same as a share of the score of that answer, such as 0.05', None, '[0, inf)'
    )
    highest_score: float | None = flag('negatives score at most so much', None, '(-inf, inf)')
    choice: str = flag(
        'top (those of the highest scores), or random (--seed)', 'top', choices=('top', 'random')
    )
    seed: int | None = flag('another number draws other negatives', None, '[0, 4294967295]')

    def check(self) -> None:
        super().check()
        if self.seed is not None and self.choice != 'random':
            raise UserError(f'--seed has no effect with --choice={self.choice}; leave it out')
        if self.first_rank > self.last_rank:
            raise UserError(f'--first_rank={self.first_rank} is above --last_rank={self.last_rank}')

    def read(self, model: 'Predictor') -> Iterator[InputRow]:
        """Yield each different query once, with the known answers of all its rows."""
        from bert_jax.problems import raw_input

        merged: dict[str, InputRow] = {}
        for row in super().read(model):
            name = str(row.values['id'])
            positives = raw_input.require_list(row.values, name, 'positives')
            query = raw_input.require_text(row.values, name, 'query')
            first = merged.setdefault(query, row._replace(values={'query': query, 'positives': {}}))
            first.values['positives'].update(dict.fromkeys(positives))
        yield from merged.values()

    @functools.cache  # noqa: B019  (a command answers one question)
    def collection(self, model: 'Predictor') -> 'TextCollection':
        """See `_AmongTexts.collection`; of equal texts, only the first is searched."""
        from bert_jax.inference import mining  # imports JAX

        return mining.without_copies(super().collection(model))

    def answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterator[JsonObject]:
        from bert_jax.inference import mining  # imports JAX

        asked = [
            mining.Answered(row.values['query'], (*row.values['positives'],), row.number)
            for row in rows
        ]
        names = [one.name for one in dataclasses.fields(mining.MiningOptions) if one.name != 'seed']
        values = {name: getattr(self, name) for name in names}
        options = mining.MiningOptions(**values, seed=self.seed or 0)
        collection, encoder = self.collection(model), self.encoder(model)
        for mined in mining.mine(collection, encoder, asked, options, model.counts):
            documents = [mined.positive, *mined.negatives]
            yield {
                'query': mined.query,
                'positive': mined.positive.text,
                'negatives': [hit.text for hit in mined.negatives],
                'scores': [hit.score for hit in documents],
            }
