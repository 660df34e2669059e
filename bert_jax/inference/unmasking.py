"""Texts by unmasking: a masked language model fills gaps in any order (objectives/unmasking.py)."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import jax
import numpy as np

from bert_jax.errors import UserError, unknown
from bert_jax.inference.batching import TokenizedText
from bert_jax.inference.gaps import GappedText
from bert_jax.inference.generate_options import (
    Generated,
    GenerateOptions,
    Generator,
    Writer,
    find_stop,
    never_written,
    row_seeds,
)
from bert_jax.models.model import Model
from bert_jax.objectives.unmasking import ORDERS, Schedule, unmask
from bert_jax.types import Batch, Params

Gapped: TypeAlias = tuple[np.ndarray, np.ndarray]  # the tokens of a row, and its hidden positions


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnmaskingOptions(GenerateOptions):
    """Options of unmasking, beside those of all generation.

    Attributes:
        steps: number of steps for a text, at most one per hidden token; None: one per token.
        order: which hidden tokens are kept first: 'confidence', those of the highest probability;
            'random'; or 'left_to_right'.
        block: number of hidden tokens, from left to right, that are filled before the next; None:
            all at once.
        remask: share of the tokens of a block that are hidden again after each step but its last,
            those that had the lowest probability when they were written.
    """

    steps: int | None = None
    order: str = 'confidence'
    block: int | None = None
    remask: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ('steps', 'block'):
            if (value := getattr(self, name)) is not None and value < 1:
                raise UserError(f'{name} is {value}; it must be at least 1')
        if self.order not in ORDERS:
            raise unknown('order of unmasking', self.order, ORDERS)
        if not 0 <= self.remask < 1:
            raise UserError(f'remask is {self.remask}; it must be at least 0 and below 1')
        if self.remask and self.steps == 1:
            raise UserError('remask has no effect in a single step; leave it out')
        if self.seed and self.temperature == 0 and self.order != 'random':
            raise UserError(
                'seed has no effect at temperature 0, which takes the most probable tokens, unless '
                "order is 'random'; leave it out"
            )


def generate(model: Writer, texts: Sequence[str], options: UnmaskingOptions) -> list[Generated]:
    """Fill the gaps of texts. The result for a text does not depend on the other texts.

    A text that occurs several times gets a different sample each time.

    Raises:
        UserError: a text has nothing to fill, or is longer than the model's input.
    """
    gapped = [
        GappedText.of(
            model.tokenizer,
            text,
            options.new_tokens,
            number,
            model.max_length,
            model.name,
        )
        for number, text in enumerate(texts, 1)
    ]
    results = fill(model, [(text.ids_T, text.positions_P) for text in gapped], options)
    return [
        _finish(model, text, result, options) for text, result in zip(gapped, results, strict=True)
    ]


def fill(
    model: Writer,
    rows: Sequence[Gapped],
    options: UnmaskingOptions,
    ends: Sequence[int] = (),
) -> list[dict[str, np.ndarray]]:
    """Fill hidden positions of rows of token ids; see `unmask` for the results.

    Args:
        rows: the tokens of each row and its hidden positions, from left to right.
        options: how they are filled.
        ends: special tokens that may be written.
    """
    banned_V = np.zeros(model.architecture.padded_vocab_size, bool)
    banned_V[model.architecture.vocab_size :] = True
    banned_V[[index for index in never_written(model) if index not in ends]] = True
    function = functools.partial(_run, options, banned_V)
    results = model.run(function, rows=[[row] for row in _rows(rows, options)])
    return [result for ((_, result),) in results]


def _rows(rows: Sequence[Gapped], options: UnmaskingOptions) -> Iterator[TokenizedText]:
    """Yield the row of each text, with what `unmask` reads."""
    seeds = row_seeds((ids_T for ids_T, _ in rows), options.seed)
    for (ids_T, positions_P), seed in zip(rows, seeds, strict=True):
        schedule = Schedule.of(len(positions_P), options.steps, options.block, options.remask)
        yield TokenizedText(
            ids_T,
            {
                'positions': positions_P,
                'block': np.arange(len(positions_P)) // (options.block or len(ids_T)),
                'seed': seed,
                'block_of_step': schedule.block_S,
                'reveal': schedule.reveal_S,
                'hide': schedule.hide_S,
            },
        )


def _run(
    options: UnmaskingOptions, banned_V: np.ndarray, model: Model, params: Params, batch: Batch
) -> dict[str, jax.Array]:
    """Call `unmask` with options; another temperature or seed compiles nothing."""
    temperature = options.temperature if options.temperature else None
    results: dict[str, jax.Array]
    results = unmask(model, options.order, temperature, banned_V, params, batch)
    return results


def _finish(
    model: Writer,
    text: GappedText,
    result: dict[str, np.ndarray],
    options: UnmaskingOptions,
) -> Generated:
    """Return the text of a row, cut at a stop string."""
    number = len(text.positions_P)
    ids, steps, log_p = (result[name][:number] for name in ('ids', 'steps', 'log_p'))
    filled, written = text.join(model.tokenizer, text.split(ids.tolist()))
    found = find_stop(written[-1], options.stop, model.counts)
    if found is not None:
        filled = filled[: len(filled.rstrip()) - len(written[-1]) + found].rstrip()
        written[-1] = written[-1][:found].rstrip()
    tokens = [model.tokenizer.vocab[index] for index in ids]
    return Generated(filled, written, tokens, log_p, steps)


UNMASKING = Generator(UnmaskingOptions, generate)
