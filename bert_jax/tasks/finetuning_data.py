"""The data of a fine-tuning run: its examples, and the tokenizer and labels made from them."""

from collections.abc import Sequence
from typing import Any

import jax
from ml_collections import ConfigDict

from bert_jax.data import tokenizers
from bert_jax.data.labeled.examples import texts_of
from bert_jax.data.labeled.loader import Splits
from bert_jax.data.labeled.records import printable
from bert_jax.errors import UserError
from bert_jax.interop.pretrained import Pretrained
from bert_jax.tasks import problems
from bert_jax.tasks.problems.base import Problem
from bert_jax.training import multihost


def check_label_order(known: tuple[str, ...], labels: tuple[str, ...], where: str) -> None:
    """Raise UserError if labels differ from those of the checkpoint or weights in `where`."""
    if known != labels:
        told = 'the same labels in another order' if set(known) == set(labels) else 'other labels'
        raise UserError(
            f'{where} has {told}: {", ".join(known[:6])} there, {", ".join(labels[:6])} here'
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


def make_tokenizer(data: ConfigDict, train: Sequence[Any]) -> tokenizers.Tokenizer:
    """Load the tokenizer of a model without weights, or train it on the train split."""
    if not data.tokenizer:
        raise UserError(
            'no tokenizer: set init_from to pretrained weights, or data.tokenizer to a file or to '
            "'train:wordpiece:2000'"
        )
    if data.tokenizer.startswith('train:'):
        spec = data.tokenizer.removeprefix('train:')
        return tokenizers.train(spec, (text for example in train for text in texts_of(example)))
    return tokenizers.load(data.tokenizer)


def choose_labels(
    problem_class: type[Problem[Any, Any]],
    train: Sequence[Any],
    settings: ConfigDict,
    model: Pretrained | None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Choose the order of the labels, and which heads of `model` to start from.

    The order is that of problem.labels; else, if `model` has a head for the same set of labels,
    that of the model, whose head is then trained further; else sorted.

    Args:
      train: the train split before other splits and a subset were drawn from it.
    Returns:
      The labels, and the names of the heads.
    Raises:
      UserError: fewer labels than the problem needs.
    """
    configured = tuple(settings.labels)
    labels = configured or tuple(sorted(problem_class.count_labels(train)))
    if len(labels) < problem_class.min_labels:
        raise UserError(
            f'the labels of the {len(train):,} training examples are '
            f'{printable(str(list(labels)))}, but at least {problem_class.min_labels} are needed; '
            'check data.columns and data.skip_labels'
        )
    heads = problem_class.pretrained_heads
    if model is None or not set(heads) & set(model.heads):
        return labels, ()
    if not labels:
        return labels, heads
    if set(labels) != set(model.labels):
        return labels, ()
    if configured:
        check_label_order(model.labels, configured, 'init_from')
    return model.labels, heads
