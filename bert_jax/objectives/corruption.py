"""The interface of a corruption: a change to the text that the encoder must undo or detect.

The corruptions of this package, each a subclass of `Corruption`:

    MaskedText    chosen tokens are hidden (masking.py)
    ReplacedText  chosen tokens are hidden and a generator fills them in (generator.py)
    CausalText    nothing is hidden; each token is predicted from the tokens to its left (clm.py)
    EditedText    sentences and tokens are moved, deleted, inserted or substituted (edits.py)

All objectives of a run share one corruption, because the encoder reads each batch once.
"""

import abc
import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from bert_jax.models.rows import Rows
from bert_jax.types import Batch, Key

if TYPE_CHECKING:
    from bert_jax.objectives.masking import Masking


class Corrupted(Protocol):
    """A corrupted batch: a pytree of arrays, such as a NamedTuple, with these methods."""

    def seen_rows(self, rows: Rows) -> Rows:
        """Return the rows that the encoder reads instead of the clean `rows`."""
        ...

    def describe_row(self, row: int, vocab: Sequence[str]) -> dict[str, list]:
        """Return the prediction targets of one row in readable form, for `debug.batch`."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class Corruption(abc.ABC):
    """Turns a clean batch into a corrupted batch, inside the jitted training step.

    Attributes:
        masking: Special tokens, and how tokens are chosen and replaced.
        num_predictions: Sequence length → maximum number of masked tokens per sequence.
        pad_id: Id of the padding token.
        options: Options of the enabled objectives, by name.
        label: Short name of the corruption for error messages.
        config_keys: Regular expression of the `masking` keys that the corruption reads.
        allows_packing: Whether a row may hold several examples (`data.pack`).
    """

    masking: 'Masking'
    num_predictions: Mapping[int, int]
    pad_id: int
    options: Mapping[str, Any]

    label: ClassVar[str]
    config_keys: ClassVar[str] = 'masking.unknown'
    allows_packing: ClassVar[bool] = True

    def __post_init__(self) -> None:  # noqa: B027 (a hook that may stay empty)
        """Subclasses check their options here and raise UserError for invalid values."""

    @classmethod
    def reads(cls, key: str) -> bool:
        """Whether the corruption reads this key of the config, such as 'masking.rate'."""
        return re.fullmatch(cls.config_keys, key) is not None

    @abc.abstractmethod
    def __call__(self, keys_B: Key, batch: Batch) -> Corrupted:
        """Corrupt a batch.

        Args:
            keys_B: One PRNG key per example. The result for an example must depend only on its key
                and its arrays, so that it is the same on any mesh.
            batch: Arrays whose first axis is the example (or packed row).

        Returns:
            The corrupted batch. Shapes depend on the shapes of `batch` alone.
        """
