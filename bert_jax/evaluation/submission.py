"""Files of predictions as the site of GLUE takes them (gluebenchmark.com; Wang et al. 2019)."""

import pathlib
from collections.abc import Mapping
from typing import NamedTuple

from bert_jax.errors import UserError, unknown


class Submission(NamedTuple):
    """file: its name. labels: what is written for a class; none: scores."""

    file: str
    labels: dict[str, str]


def _names(*labels: str) -> dict[str, str]:
    return {label: label for label in labels}


def _numbers(*labels: str) -> dict[str, str]:
    return {label: str(number) for number, label in enumerate(labels)}


_NLI = _names('entailment', 'neutral', 'contradiction')
_RTE = _names('entailment', 'not_entailment')

# By the names of data/labeled/benchmarks.py; 'ax' is the diagnostic set, by a model of mnli.
SUBMISSIONS: dict[str, Submission] = {
    'cola': Submission('CoLA.tsv', _numbers('unacceptable', 'acceptable')),
    'sst2': Submission('SST-2.tsv', _numbers('negative', 'positive')),
    'mrpc': Submission('MRPC.tsv', _numbers('not_equivalent', 'equivalent')),
    'stsb': Submission('STS-B.tsv', {}),
    'qqp': Submission('QQP.tsv', _numbers('not_duplicate', 'duplicate')),
    'mnli': Submission('MNLI-m.tsv', _NLI),
    'mnli_mismatched': Submission('MNLI-mm.tsv', _NLI),
    'qnli': Submission('QNLI.tsv', _RTE),
    'rte': Submission('RTE.tsv', _RTE),
    'wnli': Submission('WNLI.tsv', _numbers('not_entailment', 'entailment')),
    'ax': Submission('AX.tsv', _NLI),
}


def write_submission(
    task: str, predictions: Mapping[str, str | float], folder: str | pathlib.Path
) -> pathlib.Path:
    """Writes the file of a task of GLUE: a header, then index and prediction, from index 0 on.

    Args:
        predictions: by the id of an example of the test split, which is its index: the class, or
            for stsb the score, which is cut to 0 … 5.
    Raises:
        UserError: another task, an index that is missing, a class that the task does not have.
    """
    if task not in SUBMISSIONS:
        raise unknown('task of GLUE', task, SUBMISSIONS)
    file, labels = SUBMISSIONS[task]
    lines = ['index\tprediction']
    for index in range(len(predictions)):
        if str(index) not in predictions:
            raise UserError(
                f'{file}: no prediction with id {index}, though there are {len(predictions)}; the '
                'ids must be the indices of the test split'
            )
        lines.append(f'{index}\t{_written(predictions[str(index)], labels)}')
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file
    path.write_text('\n'.join(lines) + '\n')
    return path


def _written(prediction: str | float, labels: dict[str, str]) -> str:
    if not labels:
        return f'{min(5.0, max(0.0, float(prediction))):.3f}'
    if prediction not in labels:
        raise unknown('class', prediction, labels)
    return labels[prediction]
