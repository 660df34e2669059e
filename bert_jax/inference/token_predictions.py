"""What the head of a pretrained model says of tokens: guesses for masked tokens, likelihoods."""

import functools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert_jax.errors import InvalidText, UserError
from bert_jax.inference import computation
from bert_jax.inference.batching import TokenizedText
from bert_jax.inference.engine import Engine
from bert_jax.inference.text_rows import check_texts
from bert_jax.metrics.scored_rows import RowMaker, ScoredRow, add_special

if TYPE_CHECKING:
    from bert_jax.inference.likelihood_bound import LikelihoodBound


class Guess(NamedTuple):
    """A token for a [MASK], and its probability."""

    token: str
    probability: float


class Likelihood(NamedTuple):
    """The tokens of a text and their log probabilities in nats, float32 [tokens]."""

    tokens: list[str]
    log_probabilities: np.ndarray

    @property
    def total(self) -> float:
        """The pseudo-log-likelihood of the text, in nats."""
        return float(sum(self.log_probabilities.tolist()))


def fill_mask(engine: Engine, texts: Sequence[str], top_k: int = 5) -> list[list[list[Guess]]]:
    """See `Predictor.fill_mask`."""
    engine.require('fill_mask')
    encoded = engine.tokenizer.encode_batch(check_texts(texts), special=True).ids
    engine.rows.count(encoded, 'windows')
    top_k = min(top_k, engine.architecture.vocab_size)
    results = engine.run(computation.guesses, top_k, rows=map(engine.rows.of_masks, encoded))
    guesses: list[list[list[Guess]]] = []
    for windows in results:
        guesses.append([])
        for row, (probabilities_PK, ids_PK) in windows:
            for slot in range(len(row.extras['positions'])):
                pairs = zip(ids_PK[slot], probabilities_PK[slot], strict=True)
                guesses[-1].append([Guess(engine.rows.token(i), float(p)) for i, p in pairs])
    return guesses


def pseudo_likelihood(
    engine: Engine, texts: Sequence[str], long_texts: str | None = None, variant: str = 'tokens'
) -> list[Likelihood]:
    """See `Predictor.pseudo_likelihood`."""
    maker = RowMaker.of(engine.tokenizer, variant, engine.is_causal)
    encoded = engine.rows.encode(texts, long_texts)
    scores = log_probabilities(engine, [engine.rows.of_tokens(ids, maker) for ids in encoded])
    return [
        Likelihood([engine.rows.token(i) for i in ids], np.concatenate([[], *rows]).astype('f4'))
        for ids, rows in zip(encoded, scores, strict=True)
    ]


def likelihood_bound(
    engine: Engine, texts: Sequence[str], draws: int = 128, seed: int = 0
) -> 'list[LikelihoodBound]':
    """See `Predictor.likelihood_bound`."""
    from bert_jax.inference import likelihood_bound as likelihood_bounds

    engine.require('likelihood_bound')
    rows = []
    for number, ids in enumerate(engine.rows.encode(texts), 1):
        if len(ids) > engine.rows.size:
            raise InvalidText(
                number,
                f'has {len(ids) + 2} tokens; likelihood_bound of {engine.name} supports up to '
                f'{engine.max_length}',
            )
        rows.append(add_special(engine.tokenizer, ids))
    score, mask_id = functools.partial(log_probabilities, engine), engine.tokenizer.mask_id
    return list(likelihood_bounds.bounds(score, rows, mask_id, draws, seed))


def log_probabilities(
    engine: Engine, rows: Iterable[Iterable[ScoredRow]]
) -> list[list[np.ndarray]]:
    """See `Predictor.log_probabilities`."""
    engine.require('pseudo_likelihood')
    texts = [[_checked(engine, row) for row in text_rows] for text_rows in rows]
    results = engine.run(computation.log_probabilities, rows=texts)
    return [
        [log_p[: len(row.extras['targets'])] for row, log_p in text_rows] for text_rows in results
    ]


def _checked(engine: Engine, row: ScoredRow) -> TokenizedText:
    if len(row.ids) > engine.max_length:
        raise UserError(
            f'a text has {len(row.ids)} tokens; {engine.name} supports up to {engine.max_length}'
        )
    return TokenizedText(row.ids, {'positions': row.positions, 'targets': row.targets})
