"""Combines the predictions of several models, for scoring or as soft labels for training.

    python -m bert_jax.reports.ensemble a.jsonl b.jsonl --weights 0.8 0.6 --output=soft.jsonl

The files are outputs of `predict --probabilities` for the same input. The result is the softmax of
the weighted mean of the models' log probabilities (in PET, the weight of a model is its accuracy
before training).
"""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from bert_jax import files, flag_parser, progress
from bert_jax.errors import UserError, exit_cleanly, writing
from bert_jax.files import parse_json
from bert_jax.flag_parser import flag
from bert_jax.storage import outputs, paths
from bert_jax.text import text_files
from bert_jax.types import JsonObject

_MIN_PROBABILITY = 1e-30  # so that no single model can rule out a class
_TEXT_KEYS = ('text', 'text2')


def combine(
    probabilities: Sequence[Mapping[str, float]], weights: Sequence[float]
) -> dict[str, float]:
    """Return the softmax of the weighted mean of log p, by class."""
    labels = list(probabilities[0])
    p_MC = [[p_of_label[label] for label in labels] for p_of_label in probabilities]
    log_p_MC = np.log(np.maximum(p_MC, _MIN_PROBABILITY))
    score_C = np.average(log_p_MC, axis=0, weights=weights)
    p_C = np.exp(score_C - score_C.max())
    return dict(zip(labels, (p_C / p_C.sum()).tolist(), strict=True))


def records(paths: Sequence[str], weights: Sequence[float]) -> Iterator[JsonObject]:
    """Yield {'id', 'text', 'text2', 'label', 'probabilities'} for each line of the files.

    Raises:
        UserError: the files differ in their lines, texts or classes, or have no probabilities.
    """
    for lines in itertools.zip_longest(*map(_read, paths)):
        first = next(line for line in lines if line)
        classes = first.get('probabilities', {}).keys()
        for path, line in zip(paths, lines, strict=True):
            if not line or line.get('texts') != first.get('texts'):
                raise UserError(
                    f'the predictions are not for the same texts: {path} differs from the others '
                    f'at {first.get("id")}'
                )
            if isinstance(line.get('predicted'), list):
                raise UserError(
                    f'{path}, {line.get("id")}: a set of classes (multi_label); only predictions '
                    'of one class can be combined'
                )
            if not classes or line.get('probabilities', {}).keys() != classes:
                raise UserError(
                    f'{path}, {line.get("id")}: no probabilities of the classes of {paths[0]}; use '
                    'predict --probabilities'
                )
        combined = combine([line['probabilities'] for line in lines], weights)
        texts = dict(zip(_TEXT_KEYS, lines[0]['texts'], strict=False))
        label = max(combined, key=lambda label: combined[label])
        yield {'id': lines[0]['id'], **texts, 'label': label, 'probabilities': combined}


def _read(path: str) -> Iterator[JsonObject]:
    for number, line in enumerate(text_files.read_lines(path, 'utf-8'), start=1):
        try:
            yield parse_json(line)
        except ValueError as error:
            raise UserError(f'{path}, line {number} is not valid JSON: {error}') from None


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnsembleRequest:
    """The flags of this command."""

    predictions: tuple[str, ...] = flag('outputs of predict --probabilities', form='words')
    weights: tuple[float, ...] = flag(
        'a weight for each file, after them (default: equal weights)', (), form='several'
    )
    output: str = flag('file to write, JSON lines')
    overwrite: bool = flag(outputs.HELP, False)


@exit_cleanly
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` is sys.argv[1:] by default."""
    request = flag_parser.parse(
        EnsembleRequest, argv, 'python -m bert_jax.reports.ensemble', __doc__
    )
    outputs.check_file(request.output, request.overwrite)
    weights = list(request.weights) or [1.0] * len(request.predictions)
    if len(weights) != len(request.predictions) or min(weights) < 0 or not sum(weights):
        raise UserError(
            f'--weights is {request.weights}; give {len(request.predictions)} weights, each at '
            'least 0 and not all 0'
        )
    lines = [
        json.dumps(record, ensure_ascii=False) for record in records(request.predictions, weights)
    ]
    path = paths.path(request.output)
    with writing(f'--output={path}'):
        files.write_text(path, ''.join(f'{line}\n' for line in lines))
    progress.say(f'{path}: {len(lines):,} examples, from {len(request.predictions)} models')


if __name__ == '__main__':
    main()
