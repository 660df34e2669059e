"""The request of predict.py, and its tasks, from lines of text to records or vectors."""

import dataclasses
import itertools
import json
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from bert_jax.cli import mining_flags, search_flags
from bert_jax.cli.generate_flags import GenerateFlags
from bert_jax.cli.mining_flags import MiningFlags
from bert_jax.cli.prompt_flags import PromptFlags
from bert_jax.cli.search_flags import SearchFlags
from bert_jax.errors import UserError, warn
from bert_jax.files import parse_json
from bert_jax.flag_parser import flag
from bert_jax.inference.vector_file import Vectors
from bert_jax.interop import MODEL_HELP
from bert_jax.labels import word_spans
from bert_jax.metrics.scored_rows import VARIANTS
from bert_jax.problems import PROBLEMS, raw_input
from bert_jax.storage import outputs
from bert_jax.text import scripts
from bert_jax.types import JsonObject

if TYPE_CHECKING:
    from bert_jax.inference.predictor import Predictor
    from bert_jax.inference.sparse_vectors import TermEncoder
    from bert_jax.inference.text_collection import CollectionOptions
    from bert_jax.inference.vector_search import TextEncoder


# Yields the results of a task for the lines of the input.
Task: TypeAlias = Callable[['Predictor', Iterator[str], 'Request'], Iterator[Any]]

Item = TypeVar('Item')

_CHUNK = 4096  # lines that are batched together, sorted by length

_COLUMNS = {  # task → names of the tab-separated columns of a line of text
    'classify': ('text', 'text2'),
    'prompt': ('text', 'text2'),
    'write': ('text', 'text2'),
    'answer': ('question', 'context'),
    'respond': ('prompt',),
}
# Task → name of the columns after a query.
_LISTS = {'rerank': 'documents', 'mine': 'positives'}
_PRETRAINED = ('fill_mask', 'embed', 'search', 'mine', 'terms', 'pseudo_likelihood', 'pairs')
_WITHOUT_WINDOWS = ('likelihood_bound', 'generate')
_EMBED = ('task', ('embed',))


class _Tasks(Collection[str]):
    """Some tasks, and those of fine-tuned models, to which recipes may add others."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def _all(self) -> tuple[str, ...]:
        finetuned = (kind.predict_task for kind in PROBLEMS.values())
        return tuple(dict.fromkeys([*self._names, *finetuned]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __contains__(self, name: object) -> bool:
        return name in self._all()

    def __len__(self) -> int:
        return len(self._all())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(PromptFlags, SearchFlags, MiningFlags, GenerateFlags):
    """The flags of predict.py."""

    model: str = flag(MODEL_HELP, '')
    tuned: str = flag(
        'instead of --model: comma-separated runs of parameter-efficient tuning, which all answer; '
        'each record names its run; runs with the same base share its parameters in memory',
        '',
    )
    task: str = flag(
        'one of the tasks below', choices=_Tasks(*_PRETRAINED, *_WITHOUT_WINDOWS, 'chat')
    )
    input: str = flag(
        'file with one text or example a line or row; - for stdin, the default of chat alone', ''
    )
    output: str = flag('file to write; - for stdout, the default of chat alone; .npz for embed', '')
    overwrite: bool = flag(outputs.HELP, False)
    top: int = flag(
        'number of tokens for each [MASK], of texts for each query, or of terms of each text',
        5,
        '[1, inf)',
        only=('task', ('fill_mask', 'search', 'terms')),
    )
    unit: str = flag(
        'a vector for each text, word or span of characters',
        'text',
        choices=('text', 'word', 'span'),
        only=_EMBED,
    )
    pooling: str | None = flag(
        'mean or max of all tokens, cls ([CLS]), or tokens (a vector each); default: mean, or the '
        'pooling, dense layers and normalization of a sentence-transformers folder; for words and '
        'spans: mean (default), sum or first of their subwords',
        None,
        only=('task', ('embed', 'search', 'mine')),
    )
    layer: str = flag(
        'layer number, 0 for the embeddings, negative from the last; or sum_last_4, mean_last_4, '
        'concat_last_4, or all (a vector of each layer)',
        '-1',
        only=_EMBED,
    )
    prompt_name: str | None = flag(
        'prompt of the model to put before texts, such as query or document (default: as the model '
        'says; document for a run with prompts)',
        None,
        only=_EMBED,
    )
    dimensions: int | None = flag(
        'use only as many numbers of each vector, normalized again (Matryoshka embeddings)',
        None,
        '[1, inf)',
        only=('task', ('embed', 'search', 'mine')),
    )
    max_length: int | None = flag(
        'pretrained models: tokens in a window of a long text (default and limit: the length of '
        'the model)',
        None,
        only=('task', (*_PRETRAINED, *_WITHOUT_WINDOWS)),
    )
    overlap: float = flag(
        'share of a window that the next window repeats; tag, spans and answer use the value of '
        'the training',
        0.25,
        only=('task', (*_PRETRAINED, 'classify')),
    )
    long_texts: str | None = flag(
        'windows or truncate; default of embed, search and pseudo_likelihood: windows (of a '
        'sentence-transformers folder: truncate); of classify: truncate, or windows whose '
        'probabilities are averaged',
        None,
        choices=('windows', 'truncate'),
        only=('task', ('embed', 'search', 'mine', 'pseudo_likelihood', 'classify')),
    )
    variant: str = flag(
        'tokens, or word_l2r, where the later subwords of the same word are masked too',
        'tokens',
        choices=VARIANTS,
        only=('task', ('pseudo_likelihood', 'pairs')),
    )
    draws: int = flag(
        'number of masked rows for each text', 128, '[1, inf)', only=('task', ('likelihood_bound',))
    )
    probabilities: bool = flag(
        'write the probabilities of all classes; prompt: also of all answers',
        False,
        only=('task', ('classify', 'tag', 'prompt')),
    )
    no_answer: bool = flag(
        'leave a question unanswered if no answer is more probable, as published models of SQuAD '
        '2.0 are used (default: as in training)',
        False,
        only=('task', ('answer',)),
    )
    words: str | None = flag(
        'split text into words at whitespace, or also at punctuation, or into characters (default: '
        'as in the training data; embed: whitespace)',
        None,
        choices=tuple(word_spans.SPLITTERS),
        only=('task', ('tag', 'parse', 'spans', 'embed')),
    )
    input_format: str = flag(
        'fine-tuned models, embed of words and spans: every line is text, or jsonl; auto: JSON '
        'after {; tables by the name of the file',
        'auto',
        choices=('auto', 'text', 'jsonl'),
        only=('task', _Tasks('embed')),
    )
    encoding: str = flag('encoding of the input', 'utf-8')
    batch_tokens: int = flag('padded tokens of a batch', 1024, '[1, inf)')
    dtype: str = flag('float32 or bfloat16', 'float32')

    @property
    def layer_name(self) -> int | str:
        """The number of the layer, or the name of several."""
        return int(self.layer) if re.fullmatch(r'-?\d+', self.layer) else self.layer


def _fill_mask(
    predictor: 'Predictor', lines: Iterator[str], request: Request
) -> Iterator[JsonObject]:
    num_without_mask = 0
    for texts in _chunks(lines):
        for text, masks in zip(texts, predictor.fill_mask(texts, request.top), strict=True):
            num_without_mask += not masks
            yield {'text': text, 'masks': [[guess._asdict() for guess in mask] for mask in masks]}
    if num_without_mask:
        warn(f'{num_without_mask:,} line(s) have no [MASK]')


def _embed(predictor: 'Predictor', lines: Iterator[str], request: Request) -> Iterator[Vectors]:
    if request.unit != 'text':
        yield from _embed_words(predictor, lines, request)
        return
    for texts in _chunks(lines):
        for vectors in predictor.embed(
            texts,
            request.pooling,
            request.layer_name,
            request.long_texts,
            request.prompt_name,
            request.dimensions,
        ):
            yield Vectors(vectors)


def _search(predictor: 'Predictor', lines: Iterator[str], request: Request) -> Iterator[JsonObject]:
    from bert_jax.inference import reranking, text_collection  # imports JAX

    encoder, options = _of_search(predictor, request)
    settings = {'dtype': request.dtype, 'batch_tokens': request.batch_tokens}
    reranker = reranking.load(request.reranker, **settings) if request.reranker else None
    chunks = list(_chunks(lines))  # a bad line ends the command before the texts are encoded
    collection = text_collection.open_collection(encoder, options)
    if reranker:
        collection = collection.reranked(reranker, request.candidates)
    for queries in chunks:
        found = collection.search(queries, request.top)
        yield from map(search_flags.record, queries, found)
    if reranker:
        predictor.counts.update(reranking.counts_of(reranker))


def _terms(predictor: 'Predictor', lines: Iterator[str], request: Request) -> Iterator[JsonObject]:
    from bert_jax.inference import sparse_vectors  # imports JAX

    for texts in _chunks(lines):
        for text, terms in zip(texts, sparse_vectors.terms(predictor, texts), strict=True):
            best = [term._asdict() for term in terms[: request.top]]
            yield {'text': text, 'active': len(terms), 'terms': best}


def _mine(predictor: 'Predictor', lines: Iterator[str], request: Request) -> Iterator[JsonObject]:
    from bert_jax.inference import mining, text_collection  # imports JAX

    encoder, options = _of_search(predictor, request)
    names = [
        field.name for field in dataclasses.fields(mining.MiningOptions) if field.name != 'seed'
    ]
    values = {name: getattr(request, name) for name in names}
    mining_options = mining.MiningOptions(**values, seed=request.seed or 0)
    pairs = []
    for number, line in enumerate(lines, 1):
        given = parse_line(number, line, request)
        positives = raw_input.require_list(given, str(given['id']), 'positives')
        query = raw_input.require_text(given, str(given['id']), 'query')
        pairs.append(mining.Answered(query, tuple(positives)))
    collection = text_collection.open_collection(encoder, options)
    found = mining.mine(collection, encoder, pairs, mining_options, predictor.counts)
    yield from map(mining_flags.record, found)


def _of_search(
    predictor: 'Predictor', request: Request
) -> 'tuple[TextEncoder | TermEncoder, CollectionOptions]':
    """Return what encodes texts, and which texts are searched."""
    from bert_jax.inference.sparse_vectors import TermEncoder
    from bert_jax.inference.text_collection import CollectionOptions
    from bert_jax.inference.vector_search import TextEncoder

    options = CollectionOptions(
        request.documents, request.column, request.encoding, request.vectors
    )
    if predictor.is_sparse and request.pooling is None:
        if request.dimensions is not None:
            raise UserError(
                f'--dimensions has no effect: {request.model} makes sparse vectors; leave it out'
            )
        return TermEncoder(predictor, request.long_texts), options
    encoder = TextEncoder(
        predictor, request.similarity, request.pooling, request.long_texts, request.dimensions
    )
    return encoder, options


def _embed_words(
    predictor: 'Predictor', lines: Iterator[str], request: Request
) -> Iterator[Vectors]:
    """Yield the vectors of the words or spans of each line, with their character offsets."""
    from bert_jax.inference import streams, word_states

    located: deque[word_states.Located] = deque()

    def locate() -> Iterator[word_states.Located]:
        for number, line in enumerate(lines, 1):
            record = parse_line(number, line, request)
            located.append(word_states.locate_record(record, request.unit, request.words))
            yield located[-1]

    pooling = request.pooling or 'mean'
    for vectors in streams.stream_words(predictor, locate(), pooling, request.layer_name):
        yield Vectors(vectors, np.array(located.popleft()[1], np.int64).reshape(-1, 2))


def _bound(predictor: 'Predictor', lines: Iterator[str], request: Request) -> Iterator[JsonObject]:
    texts = list(lines)
    results = predictor.likelihood_bound(texts, request.draws, request.seed or 0)
    for text, result in zip(texts, results, strict=True):
        yield {'text': text, **result._asdict()}


def _generate(
    predictor: 'Predictor', lines: Iterator[str], request: Request
) -> Iterator[JsonObject]:
    prompts = list(lines)  # at once, so that repeated prompts get different samples
    for prompt, result in zip(
        prompts, predictor.generate(prompts, **request.generate_options()), strict=True
    ):
        log_p = result.log_probabilities.tolist()
        yield {'prompt': prompt, **result._asdict()} | {
            'log_probabilities': log_p,
            'steps': result.steps.tolist(),
        }


def _respond(
    predictor: 'Predictor', lines: Iterator[str], request: Request
) -> Iterator[JsonObject]:
    options = request.generate_options()
    for chunk in _chunks(enumerate(lines, 1)):
        inputs = [parse_line(number, line, request) for number, line in chunk]
        yield from predictor.respond(inputs, **options)


def _score(predictor: 'Predictor', lines: Iterator[str], request: Request) -> Iterator[JsonObject]:
    for texts in _chunks(lines):
        scores = predictor.pseudo_likelihood(texts, request.long_texts, request.variant)
        for text, scored in zip(texts, scores, strict=True):
            yield {
                'text': text,
                'pseudo_log_likelihood': scored.total,
                'tokens': scored.tokens,
                'log_probabilities': scored.log_probabilities.tolist(),
            }


def _score_pairs(
    predictor: 'Predictor', lines: Iterator[str], request: Request
) -> Iterator[JsonObject]:
    from bert_jax.inference import scoring  # imports JAX

    for numbered in _chunks(enumerate(lines, 1)):
        pairs = [_parse_pair(number, line) for number, line in numbered]
        sums = scoring.sums(predictor, itertools.chain.from_iterable(pairs), request.variant)
        shared = scoring.shared_sums(predictor, pairs, request.variant)
        for pair, first, second, of_shared in zip(pairs, sums, sums, shared, strict=True):
            yield {
                'texts': pair,
                'pseudo_log_likelihoods': [first, second],
                'of_shared_tokens': of_shared,
                'preferred': None if first == second else int(second > first),
            }


def _parse_pair(number: int, line: str) -> list[str]:
    texts = line.split('\t')
    if len(texts) != 2:
        raise UserError(f'line {number} is not TEXT<tab>TEXT; it has {len(texts)} column(s)')
    return texts


def predict_finetuned(
    predictor: 'Predictor', lines: Iterator[str], request: Request
) -> Iterator[JsonObject]:
    from bert_jax.inference.finetuned import PredictionOptions  # imports JAX

    options = PredictionOptions(request.probabilities, request.long_texts, request.words)
    for chunk in _chunks(enumerate(lines, 1)):
        inputs = [parse_line(number, line, request) for number, line in chunk]
        yield from predictor.predict(request.task, inputs, options)


# Task of pretrained models → its function.
PRETRAINED: dict[str, Task] = {
    'fill_mask': _fill_mask,
    'embed': _embed,
    'search': _search,
    'mine': _mine,
    'terms': _terms,
    'pseudo_likelihood': _score,
    'pairs': _score_pairs,
    'likelihood_bound': _bound,
    'generate': _generate,
    'respond': _respond,
}


def parse_line(number: int, line: str, request: Request) -> JsonObject:
    """Parse a line, the first is number 1, into an input for `Predictor.predict`."""
    default_id = f'input {number}'  # as for an input without an id in Python
    name, columns = f'line {number}', _COLUMNS.get(request.task, ('text',))
    if request.input_format == 'jsonl' or (request.input_format == 'auto' and line.startswith('{')):
        try:
            record = parse_json(line)
        except ValueError as error:
            raise UserError(
                f'{name} is not valid JSON: {error}; set --input_format=text if it is a text'
            ) from error
        if not isinstance(record, dict):
            raise UserError(f'{name} is not a JSON object')
        if scripts.has_surrogates(json.dumps(record, ensure_ascii=False)):
            raise UserError(f'{name} has half of a surrogate pair, which is not valid text')
        return record | {'id': default_id if record.get('id') is None else record['id']}
    if documents := _LISTS.get(request.task):
        query, *texts = line.split('\t')
        return {'id': default_id, 'query': query, documents: texts}
    values = line.split('\t') if len(columns) > 1 else [line]
    if len(values) > len(columns):
        raise UserError(
            f'{name} has {len(values)} columns; give {request.task} at most {len(columns)}, '
            f'separated by a tab'
        )
    if request.task == 'answer' and len(values) < 2:
        raise UserError(f'{name} is not QUESTION<tab>CONTEXT')
    return {'id': default_id, **dict(zip(columns, values, strict=False))}


def _chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    items = iter(items)
    while chunk := list(itertools.islice(items, _CHUNK)):
        yield chunk
