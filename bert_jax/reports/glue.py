"""GLUE and SuperGLUE: task scores, leaderboard averages, and submission files.

    python -m bert_jax.reports.glue --suite=glue --without=wnli runs/cola runs/sst2 …

The score of a task is the mean of its metrics (MNLI: over both test sets), and the average is the
mean over tasks (Wang et al. 2019, GLUE and SuperGLUE, section 3 and table 1 of both papers).
"""

import dataclasses
import pathlib
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from bert_jax import config_keys, flag_parser, progress
from bert_jax.errors import UserError, exit_cleanly, look_up, unknown
from bert_jax.files import read_json
from bert_jax.flag_parser import flag
from bert_jax.metrics import squad
from bert_jax.metrics.scores import MEAN, Table, main_first
from bert_jax.reports import tables
from bert_jax.types import JsonObject

Results = Mapping[str, Mapping[str, float]]  # test set → metric → value


class BenchmarkTask(NamedTuple):
    """A task of a suite.

    Attributes:
        metrics: the main metrics.
        positive: the class that the metric 'f1' is about, by its TFDS name.
        sets: names of the test sets; empty if the only test set is named like the task.
    """

    metrics: tuple[str, ...] = ('accuracy',)
    positive: str | None = None
    sets: tuple[str, ...] = ()


GLUE = {
    'cola': BenchmarkTask(('matthews',)),
    'sst2': BenchmarkTask(),
    'mrpc': BenchmarkTask(('f1', 'accuracy'), positive='equivalent'),
    'stsb': BenchmarkTask(('pearson', 'spearman')),
    'qqp': BenchmarkTask(('f1', 'accuracy'), positive='duplicate'),
    'mnli': BenchmarkTask(sets=('mnli', 'mnli_mismatched')),
    'qnli': BenchmarkTask(),
    'rte': BenchmarkTask(),
    'wnli': BenchmarkTask(),
}
SUPER_GLUE = {
    'boolq': BenchmarkTask(),
    'cb': BenchmarkTask(('f1_macro', 'accuracy')),
    'copa': BenchmarkTask(),
    'multirc': BenchmarkTask(('f1', 'exact_match'), positive='True'),
    'record': BenchmarkTask(('f1', 'exact_match')),
    'superglue_rte': BenchmarkTask(),
    'wic': BenchmarkTask(),
    'wsc': BenchmarkTask(),
}
SUITES = {'glue': GLUE, 'super_glue': SUPER_GLUE}


def task_score(task: BenchmarkTask, results: Results, name: str) -> float:
    """The score of the task `name`. Raises UserError if a result is missing."""
    scores = []
    for test_set in task.sets or (name,):
        if test_set not in results:
            raise UserError(f'no result for {test_set}; add its run, or use --without={name}')
        missing = [metric for metric in task.metrics if metric not in results[test_set]]
        if missing:
            raise UserError(
                f'the result for {test_set} lacks {", ".join(missing)}; evaluate the run with '
                'these in problem.metrics'
            )
        scores.append(sum(results[test_set][metric] for metric in task.metrics) / len(task.metrics))
    return sum(scores) / len(scores)


def average(
    tasks: Mapping[str, BenchmarkTask], results: Results, without: Collection[str] = ()
) -> float:
    """The average over the tasks of a suite.

    Args:
        tasks: GLUE or SUPER_GLUE.
        results: metrics by test set, 'cola', …; MNLI has two, 'mnli' and 'mnli_mismatched'.
        without: tasks to leave out, such as 'wnli' in Devlin et al. 2019.

    Raises:
        UserError: a result is missing or belongs to no task of the suite.
    """
    for name in without:
        if name not in tasks:
            raise unknown('task', name, tasks)
    known = {test_set for name, task in tasks.items() for test_set in task.sets or (name,)}
    for name in results:
        if name not in known:
            raise unknown('task', name, known)
    kept = {name: task for name, task in tasks.items() if name not in without}
    return sum(task_score(task, results, name) for name, task in kept.items()) / len(kept)


def score_record(golds: Sequence[Sequence[str]], guesses: Sequence[str]) -> dict[str, float]:
    """F1 and exact match of ReCoRD, as in SQuAD 1.1 (Zhang et al. 2018, section 5)."""
    return main_first(squad.score(golds, guesses), SUPER_GLUE['record'].metrics)


def read_results(runs: Sequence[str | pathlib.Path]) -> dict[str, dict[str, float]]:
    """The dev metrics of runs and sweeps whose folders are named after their tasks.

    The metrics of a sweep are means over the seeds of the best setting.
    """
    results: dict[str, dict[str, float]] = {}
    for run in map(pathlib.Path, runs):
        for split in ('dev', 'dev_mismatched'):
            files = [folder / split / 'metrics.json' for folder in _seed_folders(run)]
            if split != 'dev' and not all(path.is_file() for path in files):
                continue
            of_seeds = [_read(path)['metrics'] for path in files]
            results[run.name + split.removeprefix('dev')] = {
                metric: sum(metrics[metric] for metrics in of_seeds) / len(of_seeds)
                for metric in of_seeds[0]
            }
    return results


def _seed_folders(run: pathlib.Path) -> list[pathlib.Path]:
    """The folder of a run; for a sweep, the folders of the runs with the best setting."""
    path = run / 'results.json'
    sweep = _read(path) if path.is_file() else {}
    if 'best' not in sweep:
        return [run]
    folders = [path.parent for path in sorted(run.glob('*/config.json'))]
    return [folder for folder in folders if _has(_read(folder / 'config.json'), sweep['best'])]


def _has(config: JsonObject, setting: JsonObject) -> bool:
    """Whether the config of a run has the values of a setting, by keys with dots."""
    return all(config_keys.find(config, key) == value for key, value in setting.items())


def _read(path: pathlib.Path) -> JsonObject:
    if not path.is_file():
        raise UserError(f'{path} does not exist; {path.parents[1]} is not a finished run')
    values: JsonObject = read_json(path)
    return values


def average_table(
    tasks: Mapping[str, BenchmarkTask], results: Results, without: Collection[str]
) -> str:
    """A Markdown table of the score of each task and their average; raises as `average` does."""
    mean = average(tasks, results, without)
    rows = [
        (name, ', '.join((*task.sets, *task.metrics)), task_score(task, results, name))
        for name, task in tasks.items()
        if name not in without
    ]
    return tables.markdown_table(Table(('task', 'mean of', MEAN), [*rows, ('average', '', mean)]))


_NLI = {label: label for label in ('entailment', 'neutral', 'contradiction')}
_RTE = {label: label for label in ('entailment', 'not_entailment')}

# Task (named as in labels/benchmarks.py) → the file name that gluebenchmark.com requires, and
# the text of each class ({} for scores). 'ax' is the diagnostic set, predicted by the MNLI model.
SUBMISSIONS: dict[str, tuple[str, dict[str, str]]] = {
    'cola': ('CoLA.tsv', {'unacceptable': '0', 'acceptable': '1'}),
    'sst2': ('SST-2.tsv', {'negative': '0', 'positive': '1'}),
    'mrpc': ('MRPC.tsv', {'not_equivalent': '0', 'equivalent': '1'}),
    'stsb': ('STS-B.tsv', {}),
    'qqp': ('QQP.tsv', {'not_duplicate': '0', 'duplicate': '1'}),
    'mnli': ('MNLI-m.tsv', _NLI),
    'mnli_mismatched': ('MNLI-mm.tsv', _NLI),
    'qnli': ('QNLI.tsv', _RTE),
    'rte': ('RTE.tsv', _RTE),
    'wnli': ('WNLI.tsv', {'not_entailment': '0', 'entailment': '1'}),
    'ax': ('AX.tsv', _NLI),
}


def test_set(dataset: str, split: str) -> str | None:
    """The key of SUBMISSIONS for a split of a benchmark; None if the split is not submitted."""
    name = split if split == 'ax' else dataset + split.removeprefix('test')
    return name if split.startswith(('test', 'ax')) and name in SUBMISSIONS else None


def write_submission(
    task: str, predictions: Mapping[str, str | float], folder: str | pathlib.Path
) -> pathlib.Path:
    """Write the submission file of a task of GLUE: a header, then index and prediction.

    Args:
        task: a key of SUBMISSIONS.
        predictions: id → class (for stsb: the score, which is clipped to [0, 5]) of the test
            examples, whose ids are 0, 1, …
        folder: created if it does not exist.

    Returns:
        The path of the file.

    Raises:
        UserError: an unknown task or class, or a missing index.
    """
    file, labels = look_up('task of GLUE', task, SUBMISSIONS)
    lines = ['index\tprediction']
    for index in range(len(predictions)):
        if str(index) not in predictions:
            raise UserError(
                f'{file}: none of the {len(predictions)} predictions has id {index}; the ids must '
                'be the indices of the test examples'
            )
        lines.append(f'{index}\t{_format_prediction(predictions[str(index)], labels)}')
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file
    path.write_text('\n'.join(lines) + '\n')
    return path


def _format_prediction(prediction: str | float, labels: dict[str, str]) -> str:
    if not labels:
        return f'{min(5.0, max(0.0, float(prediction))):.3f}'
    return look_up('class', str(prediction), labels)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GlueRequest:
    """The flags of this command."""

    suite: str = flag('glue or super_glue', 'glue', choices=tuple(SUITES))
    without: tuple[str, ...] = flag('task to leave out; may be repeated', (), form='repeated')
    runs: tuple[str, ...] = flag('folders of runs or sweeps, named after their tasks', form='words')


@exit_cleanly
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` is sys.argv[1:] by default."""
    description = 'Average the dev scores of runs over the tasks of a suite.'
    request = flag_parser.parse(GlueRequest, argv, 'python -m bert_jax.reports.glue', description)
    progress.say(average_table(SUITES[request.suite], read_results(request.runs), request.without))


if __name__ == '__main__':
    main()
