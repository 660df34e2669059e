"""The data of a fine-tuning run: its examples, and the tokenizer and labels made from them."""

import re
from collections.abc import Collection, Sequence

import jax
from ml_collections import ConfigDict

from bert_jax import problems, tokenizers
from bert_jax.errors import UserError, join_first, warn
from bert_jax.labels.examples import Example, texts_of
from bert_jax.labels.loader import Splits
from bert_jax.labels.records import printable
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.problems import ProblemKind
from bert_jax.tokenizers import training_text
from bert_jax.training import multihost

_MANY_CLASSES = 20  # fewer different numbers may be classes of a small sample


def check_label_order(stored: tuple[str, ...], labels: tuple[str, ...], where: str) -> None:
    """Raise UserError if labels differ from the stored labels of the checkpoint in `where`."""
    if stored != labels:
        same = set(stored) == set(labels)
        difference = 'the same labels in another order' if same else 'other labels'
        raise UserError(
            f'{where} has {difference}: {", ".join(stored[:6])} there, {", ".join(labels[:6])} here'
        )


def read_splits(config: ConfigDict) -> Splits:
    """Read the labeled data, first on host 0, which may download it, then on the other hosts.

    Raises:
        UserError: see `problems.read`; or the hosts have read different data.
    """
    splits = problems.read(config.data, config.task) if jax.process_index() == 0 else None
    multihost.barrier()
    splits = splits or problems.read(config.data, config.task)
    multihost.check_same('labeled data', splits.digest)
    return splits


def make_tokenizer(
    config: ConfigDict, model: LoadedModel | None, train: Sequence[Example]
) -> tokenizers.Tokenizer:
    """Return the tokenizer of the weights, or load or train the one that data.tokenizer names."""
    name = config.data.tokenizer
    if model and model.tokenizer:
        if name:
            raise UserError(
                f'data.tokenizer is {name!r}, but init_from={config.init_from!r} has its own '
                "tokenizer; set data.tokenizer to ''"
            )
        return model.tokenizer
    if not name:
        raise UserError(
            'no tokenizer: set init_from to pretrained weights, or data.tokenizer to a file or to '
            "'train:wordpiece:2000'"
        )
    if name.startswith('train:'):
        spec = name.removeprefix('train:')
        texts = (text for example in train for text in texts_of(example))
        sample = training_text.sample(texts, tokenizers.TRAINING_CHARACTERS)
        return tokenizers.train(spec, sample)
    return tokenizers.load(name)


def _check_classes(labels: Sequence[str], num_examples: int) -> None:
    """Raise UserError for classes that look measured; warn if examples hardly share a class."""
    if len(labels) < _MANY_CLASSES or len(labels) <= num_examples / 2:
        return
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        warn(
            f'nearly every example has its own class: {len(labels):,} classes in '
            f'{num_examples:,} training examples, such as {labels[0]!r:.40}; check '
            'data.columns.label, or list the classes in problem.labels'
        )
        return
    if sorted(numbers) == list(range(len(numbers))):  # class ids
        return
    raise UserError(
        f'{len(labels):,} of the {num_examples:,} training labels are different, and all are '
        f'numbers from {min(numbers):g} to {max(numbers):g}; to predict numbers use '
        '--config=configs/finetune.py:regression, to predict classes list them in problem.labels'
    )


def choose_labels(
    kind: ProblemKind,
    train: Sequence[Example],
    settings: ConfigDict,
    model: LoadedModel | None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Choose the order of the labels, and which heads of `model` to start from.

    The labels have the order of problem.labels, if set; else, if `model` has a head for the same
    set of labels, the order of the model, whose head is then trained further; else they are sorted,
    integers by value.

    Args:
        train: the train split before other splits and a subset were drawn from it.
    Returns:
        The labels, and the names of the heads.
    Raises:
        UserError: fewer labels than the problem needs, or weights without a head that it needs.
    """
    configured = tuple(settings.labels)
    labels = configured or tuple(_sort_labels(kind.load().encoding.count_labels(train)))
    if len(labels) < kind.min_labels:
        raise UserError(
            f'the labels of the {len(train):,} training examples are '
            f'{printable(str(list(labels)))}, but at least {kind.min_labels} are needed; '
            'check data.columns and data.skip_labels'
        )
    heads = kind.pretrained_heads
    if 'sequence_classification' in heads and not configured:
        _check_classes(labels, len(train))
    present = model.heads if model else ()
    if kind.required_heads and not {*kind.required_heads} & {*present}:
        raise UserError(
            f'this kind of problem trains the head {" or ".join(map(repr, kind.required_heads))} '
            'further, but '
            + ('the weights of init_from lack it' if model else 'init_from is empty')
            + '; set init_from to pretrained weights with this head'
        )
    if kind.required_heads:
        return labels, tuple(name for name in heads if name in present)
    if model is None or not set(heads) & set(model.heads):
        return labels, ()
    if not labels:
        return labels, heads
    if sorted(labels) != sorted(model.labels):
        return labels, ()
    if configured:
        check_label_order(model.labels, configured, 'init_from')
    return model.labels, heads


def reasons_to_drop(task: str, labels: Sequence[str], model: LoadedModel | None) -> dict[str, str]:
    """Return why each head of `model` is dropped, if `choose_labels` does not keep it."""
    if model is None:
        return {}
    own = problems.find(task).pretrained_heads
    other_labels = (
        f'its labels are {join_first(model.labels) or "unnamed"}, those of the data '
        f'{join_first(labels)}; give them the same names to train the head further'
    )
    return {
        name: other_labels if name in own else f'task={task} does not use it'
        for name in model.heads
    }


def _sort_labels(labels: Collection[str]) -> list[str]:
    are_integers = all(re.fullmatch(r'-?\d+', label) for label in labels)
    return sorted(labels, key=lambda label: (int(label) if are_integers else 0, label))
