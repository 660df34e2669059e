"""The figures of GLUE and SuperGLUE, and the averages of their leaderboards.

    python -m bert_jax.evaluation.glue --suite=glue --without=wnli runs/cola runs/sst2 …

Wang et al. 2019 (GLUE, section 3 and table 1; SuperGLUE, section 3 and table 1): where a task has
several figures, or MNLI its two test sets, their mean is the task's score; the average is the mean
over tasks.
"""

import argparse
import json
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from bert_jax.errors import UserError, exit_cleanly, unknown
from bert_jax.evaluation import squad, tables
from bert_jax.evaluation.scores import MEAN, Table, main_first


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
    'mnli': Task(sets=('mnli', 'mnli_mismatched')),
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
    'superglue_rte': Task(),
    'wic': Task(),
    'wsc': Task(),
}


SUITES = {'glue': GLUE, 'super_glue': SUPER_GLUE}


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

    results: figures by test set: 'cola' …; for mnli there are two, 'mnli' and 'mnli_mismatched'.
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


def read(runs: Sequence[str]) -> dict[str, dict[str, float]]:
    """The figures on the dev split of runs in folders that have the names of their test sets."""
    found = {}
    for run in map(pathlib.Path, runs):
        path = run / 'dev' / 'metrics.json'
        if not path.is_file():
            raise UserError(f'{path} is not there: {run} is no finished fine-tuning run')
        found[run.name] = json.loads(path.read_text(encoding='utf-8'))['metrics']
    return found


def as_markdown(
    tasks: Mapping[str, Task],
    results: Mapping[str, Mapping[str, float]],
    without: Collection[str] = (),
) -> str:
    """A table of the score of each task and of their average; raises as `average` does."""
    mean = average(tasks, results, without)
    kept = {name: task for name, task in tasks.items() if name not in without}
    rows = [
        (name, ', '.join((*task.sets, *task.metrics)), task_score(task, results, name))
        for name, task in kept.items()
    ]
    return tables.markdown_table(Table(('task', 'mean of', MEAN), [*rows, ('average', '', mean)]))


@exit_cleanly
def main():
    parser = argparse.ArgumentParser(
        prog='python -m bert_jax.evaluation.glue',
        description='The average over the tasks of a suite, from the dev splits of runs.',
    )
    parser.add_argument('--suite', choices=SUITES, default='glue')
    parser.add_argument('--without', action='append', default=[], help='a task left out')
    parser.add_argument('runs', nargs='+', help='folders of runs, named as their tasks')
    flags = parser.parse_args()
    print(as_markdown(SUITES[flags.suite], read(flags.runs), flags.without))


if __name__ == '__main__':
    main()
