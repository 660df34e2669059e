"""What a kind of fine-tuning problem is, and the formats and keys that several kinds have."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bert_jax import lazy_table
from bert_jax.config_keys import ConfigKey, key
from bert_jax.labels.formats import LISTS, TABLES
from bert_jax.labels.labeled_files import Reader
from bert_jax.types import JsonRecord

if TYPE_CHECKING:
    from bert_jax.problems.base import Parts


@dataclasses.dataclass(frozen=True)
class ProblemKind:
    """A kind of fine-tuning problem, such as tagging.

    Attributes:
        implementation: 'module:NAME' of the `Parts` (problems/base.py): encoding, loss, decoder.
        predict_task: the --task of bert_jax.predict that queries fine-tuned models of this kind.
        pipeline_tag: the task on the Hugging Face Hub, for the model card.
        keys: the keys of `config.problem`. `labels` is always one of them.
        readers: `data.format` → the function that turns a record of such a file (a row, a sentence)
            into examples. Other formats cannot hold this kind of problem; the first format is
            assumed for files whose names do not tell their format.
        data_keys: keys of `config.data` that are only for some kinds of problems and that the
            readers of this kind read (`used`), with the formats of files if they are fewer than
            those of the key; None: all.
        answer_settings: keys that only affect how a trained model answers and is scored.
        also_answers: another kind that answers with the same head, for pairs of texts; '': none.
        pretrained_heads: names of heads that published checkpoints may hold
            (loaded/loaded_model.py): loaded with `init_from`, and exported.
        fine_tuned_heads: those of the pretrained heads that only models of this kind have: a
            published model with one of them is such a model.
        required_heads: pretrained heads, one of which init_from must have; they are never trained
            from scratch.
        continued_heads: heads of runs of this kind, which published models may lack: training
            starts from those of init_from.
        reads_last_layer: whether its heads always read the states of the last layer, whatever
            `model.head_states` says.
        problem_type: what config.json of an exported classifier says; '' for nothing.
        min_labels: minimum number of classes.
        has_probabilities: whether predictions can list the probability of every class.
        writes: whether its models write text: causal models, and models with a decoder.
        keeps_attention: whether its models learn to write as they were pretrained to, so that
            `init_attention` has no effect.
        long_texts: supported treatments of texts longer than a sequence, the default first:
            'truncate', or 'windows' whose predictions are combined.
    """

    implementation: str
    predict_task: str
    pipeline_tag: str
    keys: Mapping[str, ConfigKey]
    readers: Mapping[str, Reader]
    data_keys: Mapping[str, Sequence[str]] | None = None
    answer_settings: tuple[str, ...] = ()
    also_answers: str = ''
    pretrained_heads: tuple[str, ...] = ()
    fine_tuned_heads: tuple[str, ...] = ()
    required_heads: tuple[str, ...] = ()
    continued_heads: tuple[str, ...] = ()
    reads_last_layer: bool = False
    problem_type: str = ''
    min_labels: int = 0
    has_probabilities: bool = False
    writes: bool = False
    keeps_attention: bool = False
    long_texts: tuple[str, ...] = ('windows',)

    @property
    def settings(self) -> JsonRecord:
        """The defaults of the keys."""
        return {name: entry.declaration.default for name, entry in self.keys.items()}

    def load(self) -> 'Parts':
        """Import the implementation."""
        parts: Parts = lazy_table.load(self.implementation)
        return parts


def used(*names: str, **formats: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return `ProblemKind.data_keys` of names, and of names with their only formats."""
    return dict.fromkeys(names, ()) | formats


ROWS = ('tsv', *(name for name in (*TABLES, *LISTS) if name != 'tsv'))  # the first is assumed
TEXTS = (*ROWS, 'labeled_lines', 'lines', 'files')
TEXT_KEYS = used('columns.text', 'lists', 'rename_labels')
PAIR_KEYS = TEXT_KEYS | used('columns.text2', 'columns.label', 'skip_labels')

WEIGHTS = ('none', 'balanced')
LABELS = dict(
    labels=key(
        (),
        'Class names in the order of their numbers; () = sorted labels of the train split, '
        'integers by value',
    ),
)
CLASSES = LABELS | dict(
    metrics=key(
        ('accuracy',),
        'Main metrics, see metrics/scores.py: accuracy, f1_macro, matthews, f1 (of `positive`), '
        'f1_micro (without `negative`), exact_match. Several metrics are averaged.',
    ),
    positive=key('', "the class whose F1 is 'f1'"),
    negative=key('', 'the class that means "none of the other classes", left out of \'f1_micro\''),
    class_weights=key(
        'none', "'balanced': weight of a class in the loss ∝ 1 / frequency", choices=WEIGHTS
    ),
    label_smoothing=key(0.0, 'ε: targets are (1 − ε) · one-hot + ε / number of classes', '[0, 1)'),
)
CLASS_SCORES = ('metrics', 'positive', 'negative')  # of CLASSES
SCORE_METRICS = key(('pearson', 'spearman'), "also 'rmse'")
WINDOWS = dict(
    overlap=key(0.5, 'share of a window of a long text that the next window repeats', '[0, 1)'),
)
