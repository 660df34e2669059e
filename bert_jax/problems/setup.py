"""What the encoding, the loss and the decoder of a fine-tuning problem are made from."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict

from bert_jax.averages import Terms, weighted_sum
from bert_jax.errors import UserError, join_first
from bert_jax.labels.examples import ExampleId
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from bert_jax.types import Array, JsonView


@dataclasses.dataclass(frozen=True, eq=False)
class Setup:
    """What the parts of a problem are made from.

    Attributes:
        settings: the config's `problem`.
        layout: where special tokens go around one or two texts.
        labels: class names in the order of their numbers.
        kept: JSON values from the training examples that predictions need, stored in checkpoints;
            while training is prepared, 'modules' of a sentence-transformers folder in init_from.
        activation: function on the logit of a regression: 'identity', or 'sigmoid' for some models
            of other libraries.
        all_probabilities: whether predictions list the probability of every class.
        window_overlap: for problems that truncate by default, the share of a window that the next
            window repeats; None to truncate.
        is_causal: whether the model attends only to earlier positions.
        batch_size: examples of a training batch; 0 if the model is not trained here.
        counts: encoding counts here how many texts or labels were truncated or unusable, by reason.
    """

    settings: ConfigDict
    layout: SpecialTokenLayout
    labels: tuple[str, ...] = ()
    kept: JsonView = dataclasses.field(default_factory=dict)
    activation: str = 'identity'
    all_probabilities: bool = False
    window_overlap: float | None = None
    is_causal: bool = False
    batch_size: int = 0
    counts: Counter[str] = dataclasses.field(default_factory=Counter)

    @property
    def splitter(self) -> str:
        """How plain text is split into words (SPLITTERS in labels/word_spans.py)."""
        return str(self.kept.get('splitter', 'punctuation'))

    @property
    def class_counts(self) -> Sequence[int]:
        """How often each class occurs in the train split; empty without class weights."""
        counts: Sequence[int] = self.kept.get('class_counts', ())
        return counts

    @functools.cached_property
    def label_numbers(self) -> dict[str, int]:
        """The number of each class. Raises UserError if two classes have the same name."""
        numbers: dict[str, int] = {}
        for number, label in enumerate(self.labels):
            if numbers.setdefault(label, number) != number:
                raise UserError(
                    f'the classes {numbers[label]} and {number} are both named {label!r}; give '
                    'each class its own name in problem.labels, or in id2label of config.json'
                )
        return numbers

    def label_number(self, label: str, example_id: ExampleId) -> int:
        """Return the number of a label. Raises UserError if it is not one of `labels`."""
        if label not in self.label_numbers:
            raise UserError(
                f'example {example_id}: the label {label!r} is not among the trained labels: '
                f'{join_first(self.labels)}; set problem.labels to all labels, or '
                'data.rename_labels or data.skip_labels'
            )
        return self.label_numbers[label]

    def stored_label(self, stored: int | np.ndarray) -> str | None:
        """Return the class of a stored number (number of the class + 1); None for 0, unknown."""
        return self.labels[int(stored) - 1] if stored else None

    @functools.cached_property
    def class_weights_C(self) -> np.ndarray:
        """The weight of each class in the loss, fp32 [C]; of spans [C + 1], 'no label' first.

        With class_weights='balanced' the weight is N / (C · count), as in scikit-learn (after King
        & Zeng 2001); otherwise it is 1.
        """
        if not self.class_counts:
            return np.ones(len(self.labels) + 1, np.float32)  # enough for spans, too
        counts_C = np.array(self.class_counts, np.float32)
        return np.asarray(counts_C.sum() / (len(counts_C) * np.maximum(counts_C, 1)))

    def class_terms(self, name: str, logits_XC: jax.Array, label_X: Array) -> Terms:
        """Return the term `name`, smoothed and weighted cross-entropy, and 'accuracy'.

        Args:
            name: name of the loss.
            logits_XC: fp32, for sequences or tokens.
            label_X: number of the class + 1; 0 for an unknown class, which is not counted.
        """
        class_X, is_known_X = jnp.maximum(label_X - 1, 0), label_X > 0
        smoothing, number = self.settings.label_smoothing, len(self.labels)
        target_XC = jax.nn.one_hot(class_X, number) * (1 - smoothing) + smoothing / number
        loss_X = -jnp.sum(target_XC * jax.nn.log_softmax(logits_XC), axis=-1)
        weight_X = jnp.asarray(self.class_weights_C)[class_X] * is_known_X
        return {
            name: weighted_sum(loss_X, weight_X),
            'accuracy': weighted_sum(logits_XC.argmax(-1) == class_X, is_known_X),
        }
