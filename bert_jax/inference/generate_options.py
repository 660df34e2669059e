"""What all kinds of generation share: options, results, and the table of kinds by head."""

import dataclasses
import hashlib
import numbers
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from bert_jax.errors import UserError, unknown
from bert_jax.inference.batching import TokenizedText
from bert_jax.lazy_table import LazyTable
from bert_jax.models.architecture import Architecture
from bert_jax.tokenizers import Tokenizer
from bert_jax.types import Tree


@dataclasses.dataclass(frozen=True, kw_only=True)
class GenerateOptions:
    """How texts are written; each kind of generation adds its own options.

    Attributes:
        new_tokens: number of tokens to write after each text.
        temperature: divides the logits before sampling; 0 takes the most probable token.
        seed: another number gives other samples.
        stop: strings that end what is written after a text; the text is cut before the first.
    """

    new_tokens: int = 0
    temperature: float = 1.0
    seed: int = 0
    stop: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check_number(field.name, getattr(self, field.name), field.type)
        if self.new_tokens < 0:
            raise UserError(f'new_tokens is {self.new_tokens}; it must be at least 0')
        if not 0 <= self.temperature < float('inf'):
            raise UserError(f'temperature is {self.temperature}; it must be at least 0')
        if not 0 <= self.seed < 2**32:
            raise UserError(f'seed is {self.seed}; it must be from 0 to 2³² − 1')
        if isinstance(self.stop, str) or not all(self.stop):
            raise UserError(f'stop is {self.stop!r}; it must be a list of strings that are not ""')
        if self.stop and not self.new_tokens:
            raise UserError('stop has an effect only on text after a prompt; set new_tokens')
        object.__setattr__(self, 'stop', tuple(self.stop))


# Type of an option → the values that it may have, and their name; others are not checked.
_NUMBERS: dict[object, tuple[tuple[type, ...], str]] = {
    int: ((numbers.Integral,), 'an integer'),
    int | None: ((numbers.Integral, type(None)), 'an integer'),
    float: ((numbers.Real,), 'a number'),
}


def _check_number(name: str, value: object, kind: object) -> None:
    """Raise UserError for a value that is not a number of its kind."""
    types, wanted = _NUMBERS.get(kind, ((object,), ''))
    if not isinstance(value, types) or (wanted and isinstance(value, bool)):
        raise UserError(f'{name} is {value!r:.40}; it must be {wanted}')


class Generated(NamedTuple):
    """A text that a model has completed.

    Attributes:
        text: the whole text, the prompt included.
        written: what the model wrote in each gap of the prompt and after the prompt.
        tokens: the tokens that the model wrote, from left to right, those after a stop string
            included.
        log_probabilities: float32 [tokens], in nats, of each token when it was written.
        steps: int32 [tokens], the step in which each token was written, from 0.
    """

    text: str
    written: list[str]
    tokens: list[str]
    log_probabilities: np.ndarray
    steps: np.ndarray


class WritingModel(Protocol):
    """What the tokens that may be written depend on."""

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the model."""

    @property
    def architecture(self) -> Architecture:
        """The architecture of the model."""

    @property
    def learned_end(self) -> bool:
        """Whether the model has learned the token after a text."""


class Writer(WritingModel, Protocol):
    """A loaded model, as generation uses it; see `Engine`."""

    @property
    def name(self) -> str:
        """The name of the model in error messages."""

    @property
    def max_length(self) -> int:
        """The longest row of tokens."""

    @property
    def has_prefix(self) -> bool:
        """Whether positions of a causal model see the whole prompt."""

    @property
    def counts(self) -> Counter[str]:
        """Number of texts that did not end, and so on."""

    def run(
        self,
        function: Callable[..., Tree],
        *options: object,
        rows: Iterable[Iterable[TokenizedText]],
    ) -> list[list[tuple[TokenizedText, Tree]]]:
        """Run a function of the model, options, parameters and a batch on the rows of texts."""


class Generator(NamedTuple):
    """A kind of generation.

    Attributes:
        options: the class of its options.
        generate: completes texts; raises UserError for texts that it cannot complete.
    """

    options: type[GenerateOptions]
    generate: Callable[[Writer, Sequence[str], Any], list[Generated]]

    def read(self, options: Mapping[str, object]) -> GenerateOptions:
        """Return the options; raise UserError for one that this kind does not have."""
        known = [field.name for field in dataclasses.fields(self.options)]
        for name in options:
            if name not in known:
                raise unknown('option of generation with this model', name, known)
        return self.options(**options)  # type: ignore[arg-type]  # checked by the class


# Name of the head that predicts tokens → how a model with this head writes text.
GENERATORS: LazyTable[Generator] = LazyTable(
    {
        'mlm': 'bert_jax.inference.unmasking:UNMASKING',
        'clm': 'bert_jax.inference.generation:CAUSAL',
        'seq2seq': 'bert_jax.inference.generation:CAUSAL',
    }
)


def row_seeds(rows: Iterable[np.ndarray], seed: int) -> Iterator[np.ndarray]:
    """Yield a seed for each row of token ids, int32 [1], which does not depend on the other rows.

    Rows that are equal get different seeds.
    """
    seen: Counter[bytes] = Counter()
    for row in rows:
        ids = row.tobytes()
        digest = hashlib.blake2b(f'{seed} {seen[ids]} '.encode() + ids, digest_size=4).digest()
        seen[ids] += 1
        yield np.frombuffer(digest, np.int32)


def never_written(model: WritingModel) -> list[int]:
    """The ids that are not written: ids of the model without a token, and special tokens.

    A decoder may write special tokens, as in transformers: T5 fills spans with its sentinels.
    """
    tokenizer, num_ids = model.tokenizer, model.architecture.vocab_size
    empty = {index for index, token in enumerate(tokenizer.vocab) if not token}
    special = tokenizer.special_ids if model.architecture.decoder is None else ()
    return sorted({*special} | empty | {*range(tokenizer.vocab_size, num_ids)})


def first_stop(written: str, stop: Sequence[str]) -> int | None:
    """Return where the first stop string starts; None if there is none."""
    return min((at for one in stop if (at := written.find(one)) >= 0), default=None)


def find_stop(written: str, stop: Sequence[str], counts: Counter[str]) -> int | None:
    """Return where the first stop string starts; None, which is counted, if there is none."""
    found = first_stop(written, stop)
    counts['texts in which no stop string was written'] += bool(stop) and found is None
    return found
