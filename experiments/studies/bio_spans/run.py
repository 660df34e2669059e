"""Counts how entities go wrong in the predictions of a tagger (BIO) and of a span classifier.

python -m experiments.studies.bio_spans.run --train=train.conll --dev=dev.conll --weights=FOLDER

A tagger decides for each word, so one wrong tag breaks an entity of several words: another type or
"outside" within it. A span classifier decides for the whole span. Jurafsky and Martin, Speech and
Language Processing (3rd edition), chapter on masked language models, give this as a reason for
spans. Both heads are trained on the same files, steps and seeds, and the study counts, for each
entity of several words, how many of its words have another label.
"""

import argparse
import json
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence

from bert_jax.errors import exit_cleanly
from experiments.studies import runner
from experiments.studies.claims import Claim

Span = tuple[int, int, str]  # first character, end (exclusive), label
KINDS = {'BIO': 'tagging', 'spans': 'spans'}
# Outcome of an entity of several words → title of its column.
OUTCOMES = {
    'right': 'right (%)',
    'one_word': 'one word wrong (%)',
    'more_words': 'several words wrong (%)',
    'boundary': 'all words right, other ends (%)',
    'missed': 'no word right (%)',
}
COLUMNS = {'f1': 'F1', **OUTCOMES, 'entities': 'entities'}
PLOTTED = tuple(name for name in OUTCOMES if name != 'right')
CLAIMS = (
    Claim(
        'bio_spans/results.json',
        default_seeds=2,
        settings={'': {'steps': 600, 'rate': 5e-4, 'decoding': 'threshold'}},
        ran={
            '*': {'transfer.trainable': 'all'},
            'bio_*': {'task': 'tagging'},
            'spans_*': {'task': 'spans', 'problem.decoding': 'threshold'},
        },
        predates=True,
    ),
)


def outcome(entity: Span, words: Sequence[tuple[int, int]], predicted: Sequence[Span]) -> str:
    """Return what became of an entity, a key of OUTCOMES.

    Args:
        entity: the gold entity.
        words: the characters of the words of the text.
        predicted: the predicted entities. The label of a word is that of the first that covers it.
    """
    if entity in predicted:
        return 'right'
    start, end, label = entity
    inside = [word for word in words if word[0] < end and word[1] > start]
    labels = [
        next((own for first, last, own in predicted if a < last and b > first), '')
        for a, b in inside
    ]
    wrong = sum(own != label for own in labels)
    if wrong == 0:
        return 'boundary'
    if wrong == len(inside):
        return 'missed'
    return 'one_word' if wrong == 1 else 'more_words'


def count(
    texts: Mapping[str, Sequence[tuple[int, int]]],
    gold: Mapping[str, Sequence[Span]],
    predicted: Mapping[str, Sequence[Span]],
) -> runner.Measures:
    """Return the share of each outcome, in percent of the entities of several words, and F1.

    Args:
        texts: id of a text → the characters of its words.
        gold, predicted: id → its entities.
    """
    outcomes: Counter[str] = Counter()
    right = 0
    for name, words in texts.items():
        right += len({*gold[name]} & {*predicted[name]})
        for entity in gold[name]:
            if sum(a < entity[1] and b > entity[0] for a, b in words) > 1:
                outcomes[outcome(entity, words, predicted[name])] += 1
    number = sum(map(len, gold.values())) + sum(map(len, predicted.values()))
    total = max(sum(outcomes.values()), 1)
    shares = {name: 100 * outcomes[name] / total for name in OUTCOMES}
    return {'f1': 2 * right / max(number, 1), **shares, 'entities': float(total)}


def read_words(folder: pathlib.Path) -> dict[str, list[tuple[int, int]]]:
    """Read the words of each text of dev from the predictions of a tagger."""
    return {
        record['id']: [(word['start'], word['end']) for word in record['words']]
        for record in _records(folder)
    }


def read_predicted(folder: pathlib.Path) -> dict[str, list[Span]]:
    """Read the predicted entities of each text of dev."""
    return {
        record['id']: _spans(record.get('entities', record.get('predicted')))
        for record in _records(folder)
    }


def read_gold(folder: pathlib.Path) -> dict[str, list[Span]]:
    """Read the entities of each text of dev from the predictions of a span classifier."""
    return {record['id']: _spans(record['gold']) for record in _records(folder)}


def _records(folder: pathlib.Path) -> list[dict]:
    lines = (folder / 'dev/predictions.jsonl').read_text(encoding='utf-8').splitlines()
    return list(map(json.loads, lines))


def _spans(spans: list[dict]) -> list[Span]:
    return [(span['start'], span['end'], span['label']) for span in spans]


@exit_cleanly
def main():
    parser = runner.argument_parser('bio_spans', __doc__, steps=400, seeds=3, reads_novels=False)
    parser.add_argument('--train', required=True, help='CoNLL files with tags of entities; a glob')
    parser.add_argument('--dev', required=True, help='the files to predict; a glob')
    parser.add_argument('--weights', required=True, help='pretrained model: a run or a folder')
    parser.add_argument(
        '--decoding',
        default='argmax',
        choices=('argmax', 'threshold'),
        help='problem.decoding of spans; a threshold is tuned on --dev itself',
    )
    parser.add_argument('--rate', type=float, default=1e-4, help='peak learning rate')
    options = parser.parse_args()

    def measure(name: str, seed: int) -> runner.Measures:
        folders = {kind: train(options, kind, seed) for kind in KINDS}
        words, gold = read_words(folders['BIO']), read_gold(folders['spans'])
        return count(words, gold, read_predicted(folders[name]))

    results = runner.for_all_seeds(options.seeds, KINDS, measure)
    weights = pathlib.Path(options.weights).name
    settings = {
        'steps': options.steps,
        'rate': options.rate,
        'weights': weights,
        'decoding': options.decoding,
    }
    runner.write(options, results, COLUMNS, settings, PLOTTED)


def train(options: argparse.Namespace, name: str, seed: int) -> pathlib.Path:
    """Train a head with a seed unless it has been; return its folder."""
    keys = {
        'init_from': options.weights,
        'data.train': f"('{options.train}',)",
        'data.dev': f"('{options.dev}',)",
        'data.dev_fraction': 0.0,
        'data.format': 'conll',
        'training.steps': options.steps,
        'training.epochs': 0.0,
        'training.batch_size': 16,
        'training.sequence_length': 64,
        'schedule.learning_rate': options.rate,
        'seed': seed,
    }
    variant = f'{name} {options.steps}'
    if name == 'spans':
        keys |= {'problem.nested': False, 'problem.decoding': options.decoding}
        variant += f' {options.decoding}'
    folder = runner.run_folder(options, variant, seed)
    command = runner.main_command(f'configs/finetune.py:{KINDS[name]}', keys)
    runner.run_once(folder, command, '--config.workdir')
    return folder


if __name__ == '__main__':
    main()
