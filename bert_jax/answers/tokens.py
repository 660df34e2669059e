"""Tokens and their probabilities: masked tokens, likelihoods of texts, weights of terms."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar

from bert_jax.answers.base import SLOW, Question, Windows
from bert_jax.answers.input_rows import Fields, InputRow, texts_of
from bert_jax.flag_parser import flag
from bert_jax.metrics.scored_rows import VARIANTS
from bert_jax.types import JsonObject, JsonRecord

if TYPE_CHECKING:
    from bert_jax.inference.predictor import Predictor


@dataclasses.dataclass(frozen=True, kw_only=True)
class FillMask(Windows):
    """The most probable tokens of each [MASK]."""

    summary = 'tokens for every [MASK] of a text, for masked language models'
    writes = '{"text", "masks": [[{"token", "probability"}, ...], ...]}'

    top: int = flag('number of tokens for each [MASK]', 5, '[1, inf)')

    def answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterator[JsonRecord]:
        texts = texts_of(rows)
        for text, masks in zip(texts, model.fill_mask(texts, self.top), strict=True):
            model.counts['line(s) have no [MASK]'] += not masks
            yield {'text': text, 'masks': [[guess._asdict() for guess in mask] for mask in masks]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Scored(Windows):
    method: ClassVar[str] = 'pseudo_likelihood'
    rows_at_once: ClassVar[int | None] = SLOW

    variant: str = flag(
        'tokens, or word_l2r, where the later subwords of the same word are masked too',
        'tokens',
        choices=VARIANTS,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class PseudoLikelihood(_Scored):
    """The log probability of each token of a text."""

    summary = (
        'log probability of each token when it is masked, in nats; for a causal model, log '
        'probability given the tokens to its left'
    )
    writes = '{"text", "pseudo_log_likelihood", "tokens", "log_probabilities"}'

    long_texts: str | None = flag(
        'windows (default) or truncate', None, choices=('windows', 'truncate')
    )

    def answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterator[JsonRecord]:
        texts = texts_of(rows)
        scores = model.pseudo_likelihood(texts, self.long_texts, self.variant)
        for text, scored in zip(texts, scores, strict=True):
            yield {
                'text': text,
                'pseudo_log_likelihood': scored.total,
                'tokens': scored.tokens,
                'log_probabilities': scored.log_probabilities.tolist(),
            }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pairs(_Scored):
    """Which of two sentences is likelier."""

    summary = 'compare two sentences; "preferred" is 0, 1 or null (a tie)'
    reads = 'TEXT<tab>TEXT a line'
    writes = '{"texts", "pseudo_log_likelihoods", "of_shared_tokens", "preferred"}'
    fields = Fields(('text', 'text2'), least=2, only_texts=True, required=('text', 'text2'))

    def answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterator[JsonObject]:
        from bert_jax.inference import scoring  # imports JAX

        pairs = [[row.values['text'], row.values['text2']] for row in rows]
        sums = scoring.sums(model, itertools.chain.from_iterable(pairs), self.variant)
        shared = scoring.shared_sums(model, pairs, self.variant)
        for pair, first, second, of_shared in zip(pairs, sums, sums, shared, strict=True):
            yield {
                'texts': pair,
                'pseudo_log_likelihoods': [first, second],
                'of_shared_tokens': of_shared,
                'preferred': None if first == second else int(second > first),
            }


@dataclasses.dataclass(frozen=True, kw_only=True)
class LikelihoodBound(Question):
    """A lower bound on the log likelihood of each text."""

    summary = (
        'lower bound on the log likelihood of a text, in nats, for models of masked diffusion: the '
        'mean over --draws'
    )
    writes = '{"text", "log_likelihood", "standard_error", "num_tokens"}'
    rows_at_once = SLOW

    max_length: int | None = flag('tokens of a text, at most (default: as the model)', None)
    draws: int = flag('number of masked rows for each text', 128, '[1, inf)')
    seed: int = flag('another number draws other masks', 0, '[0, 4294967295]')

    def answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterator[JsonRecord]:
        texts = texts_of(rows)
        bounds = model.likelihood_bound(texts, self.draws, self.seed)
        for text, bound in zip(texts, bounds, strict=True):
            yield {'text': text, **bound._asdict()}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Terms(Question):
    """The terms of the vocabulary with the largest weights in a text."""

    summary = (
        'terms of the vocabulary with the largest weights in a text, as SPLADE models give them, '
        'and how many have a weight'
    )
    writes = '{"text", "active", "terms": [{"token", "weight"}, ...]}'
    method = 'fill_mask'

    max_length: int | None = flag('tokens of a text, at most (default: as the model)', None)
    top: int = flag('number of terms of each text', 5, '[1, inf)')

    def answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterator[JsonRecord]:
        from bert_jax.inference import sparse_vectors  # imports JAX

        texts = texts_of(rows)
        for text, terms in zip(texts, sparse_vectors.terms(model, texts), strict=True):
            best = [term._asdict() for term in terms[: self.top]]
            yield {'text': text, 'active': len(terms), 'terms': best}
