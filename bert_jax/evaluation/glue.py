"""The figures of GLUE and SuperGLUE, and the averages of their leaderboards.

Wang et al. 2019 (GLUE, section 3 and table 1; SuperGLUE, section 3 and table 1): where a task has
several figures, or MNLI its two test sets, their mean is the task's score; the average is the mean
over tasks.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from bert_jax.errors import UserError, unknown
from bert_jax.evaluation import squad
from bert_jax.evaluation.scores import main_first


class Task(NamedTuple):
    """metrics: the figures that count. positive: the class whose F1 is 'f1', as TFDS names it.
    sets: the test sets, where there are several."""

    metrics: tuple[str, ...] = ('accuracy',)
    positive: str | None = None
    sets: tuple[str, ...] = ()


GLUE = {
    'cola': Task(('matthews',)),
    'sst2': Task(),
    'mrpc': Task(('f1', 'accuracy'), positive='equivalent'),
    'stsb': Task(('pearson', 'spearman')),
    'qqp': Task(('f1', 'accuracy'), positive='duplicate'),
    'mnli': Task(sets=('mnli_matched', 'mnli_mismatched')),
    'qnli': Task(),
    'rte': Task(),
    'wnli': Task(),
}
SUPER_GLUE = {
    'boolq': Task(),
    'cb': Task(('f1_macro', 'accuracy')),
    'copa': Task(),
    'multirc': Task(('f1', 'exact_match'), positive='True'),
    'record': Task(('f1', 'exact_match')),
    'rte': Task(),
    'wic': Task(),
    'wsc': Task(),
}


def task_score(task: Task, results: Mapping[str, Mapping[str, float]], name: str) -> float:
    """The score of a task by the figures of its test sets. Raises UserError for what is missing."""
    found = []
    for part in task.sets or (name,):
        if part not in results:
            raise UserError(f'no result for {part}')
        missing = [metric for metric in task.metrics if metric not in results[part]]
        if missing:
            raise UserError(f'the result for {part} lacks {", ".join(missing)}')
        found.append(sum(results[part][metric] for metric in task.metrics) / len(task.metrics))
    return sum(found) / len(found)


def average(
    tasks: Mapping[str, Task],
    results: Mapping[str, Mapping[str, float]],
    without: Collection[str] = (),
) -> float:
    """The average over GLUE or SUPER_GLUE, which needs all tasks but those left out by name (as
    Devlin et al. 2019 leave out wnli).

    results: figures by test set: 'cola' …, but for mnli 'mnli_matched' and 'mnli_mismatched'.
    Raises UserError for a missing result, and for one that no task asks for.
    """
    for name in without:
        if name not in tasks:
            raise unknown('task', name, tasks)
    known = {part for name, task in tasks.items() for part in task.sets or (name,)}
    for name in results:
        if name not in known:
            raise unknown('task', name, known)
    found = [task_score(task, results, name) for name, task in tasks.items() if name not in without]
    return sum(found) / len(found)


def record(golds: Sequence[Sequence[str]], guesses: Sequence[str]) -> dict[str, float]:
    """F1 and exact match of ReCoRD, those of SQuAD 1.1 (Zhang et al. 2018, section 5)."""
    return main_first(squad.score(golds, guesses), SUPER_GLUE['record'].metrics)
