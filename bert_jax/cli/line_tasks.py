"""The tasks of predict.py, from lines of text to records or vectors."""

import dataclasses
import itertools
import json
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bert_jax.cli import mining_flags, search_flags
from bert_jax.cli.input_lines import chunks, parse_line
from bert_jax.cli.request import Request
from bert_jax.errors import UserError, warn
from bert_jax.inference import table_input
from bert_jax.inference.vector_file import Vectors
from bert_jax.problems import raw_input
from bert_jax.types import JsonObject

if TYPE_CHECKING:
    from bert_jax.inference.predictor import Predictor
    from bert_jax.inference.sparse_vectors import TermEncoder
    from bert_jax.inference.text_collection import CollectionOptions
    from bert_jax.inference.vector_search import TextEncoder


# Yields the results of a task for the lines of the input.
Task: TypeAlias = Callable[['Predictor', Iterator[str], 'Request'], Iterator[Any]]


def _fill_mask(
    predictor: 'Predictor', lines: Iterator[str], request: Request
) -> Iterator[JsonObject]:
    num_without_mask = 0
    for texts in chunks(lines):
        for text, masks in zip(texts, predictor.fill_mask(texts, request.top), strict=True):
            num_without_mask += not masks
            yield {'text': text, 'masks': [[guess._asdict() for guess in mask] for mask in masks]}
    if num_without_mask:
        warn(f'{num_without_mask:,} line(s) have no [MASK]')


def _embed(predictor: 'Predictor', lines: Iterator[str], request: Request) -> Iterator[Vectors]:
    if request.unit != 'text':
        yield from _embed_words(predictor, lines, request)
        return
    for texts in chunks(lines):
        for vectors in predictor.embed(
            texts,
            request.pooling,
            request.layer,
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
    all_queries = list(chunks(lines))  # a bad line ends the command before the texts are encoded
    collection = text_collection.open_collection(encoder, options)
    if reranker:
        collection = collection.reranked(reranker, request.candidates)
    for queries in all_queries:
        found = collection.search(queries, request.top)
        yield from map(search_flags.record, queries, found)
    if reranker:
        predictor.counts.update(reranking.counts_of(reranker))


def _terms(predictor: 'Predictor', lines: Iterator[str], request: Request) -> Iterator[JsonObject]:
    from bert_jax.inference import sparse_vectors  # imports JAX

    for texts in chunks(lines):
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
        return TermEncoder(predictor, request.similarity, request.long_texts), options
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
    for vectors in streams.stream_words(predictor, locate(), pooling, request.layer):
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
    for chunk in chunks(enumerate(lines, 1)):
        inputs = [parse_line(number, line, request) for number, line in chunk]
        yield from predictor.respond(inputs, **options)


def _score(predictor: 'Predictor', lines: Iterator[str], request: Request) -> Iterator[JsonObject]:
    for texts in chunks(lines):
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

    source = request.input, request.task, request.unit, request.input_format
    is_table = bool(table_input.format_read(*source))
    for numbered in chunks(enumerate(lines, 1)):
        pairs = [_parse_pair(number, line, is_table) for number, line in numbered]
        sums = scoring.sums(predictor, itertools.chain.from_iterable(pairs), request.variant)
        shared = scoring.shared_sums(predictor, pairs, request.variant)
        for pair, first, second, of_shared in zip(pairs, sums, sums, shared, strict=True):
            yield {
                'texts': pair,
                'pseudo_log_likelihoods': [first, second],
                'of_shared_tokens': of_shared,
                'preferred': None if first == second else int(second > first),
            }


def _parse_pair(number: int, line: str, is_table: bool) -> list[str]:
    texts: list[str] = json.loads(line) if is_table else line.split('\t')
    if len(texts) != 2:
        raise UserError(f'line {number} is not TEXT<tab>TEXT; it has {len(texts)} column(s)')
    return texts


def predict_finetuned(
    predictor: 'Predictor', lines: Iterator[str], request: Request
) -> Iterator[JsonObject]:
    from bert_jax.inference.finetuned import PredictionOptions  # imports JAX

    options = PredictionOptions(request.probabilities, request.long_texts, request.words)
    for chunk in chunks(enumerate(lines, 1)):
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
