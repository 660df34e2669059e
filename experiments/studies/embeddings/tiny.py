"""Trains sentence embeddings from a small pretrained encoder; STS before and after.

    python -m experiments.studies.embeddings.tiny --data=FOLDER --init_from=RUN

The encoder learns from questions and the sentences that answer them (QAMR, in-batch negatives), and
is scored on pairs of sentences that it has not seen (STS of Stack Exchange).
"""

import argparse
import json
import pathlib
from collections.abc import Iterable

import numpy as np
from scipy import stats

import bert_jax
from bert_jax.errors import exit_cleanly
from experiments.studies import runner
from experiments.studies.claims import Claim
from experiments.studies.embeddings import tasks

COLUMNS = {
    'before': 'Spearman before training',
    'spearman': 'after training',
}

CLAIMS = (
    Claim(
        'embeddings/results_tiny.json',
        default_seeds=3,
        settings={'': {'training.steps': 300, 'training.batch_size': 64}},
        ran={'300_?': {'transfer.trainable': 'all', 'task': 'embedding'}},
        predates=True,
    ),
)


def write_lines(path: pathlib.Path, records: Iterable[dict]) -> None:
    """Write a file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('\n'.join(map(json.dumps, records)) + '\n', encoding='utf-8')


def questions(data: pathlib.Path) -> list[dict]:
    """All questions of QAMR, each with the sentence that answers it."""
    sentences = dict(tasks.lines(data / 'qamr/wiki-sentences.tsv'))
    return [
        {'text': [fields[4], sentences[name]]}
        for name, *fields in tasks.lines(data / 'qamr/dev.tsv')
        if name in sentences
    ]


def scored_pairs(data: pathlib.Path) -> list[dict]:
    """Pairs of sentences with a score of their similarity."""
    return [
        {'text': [first, second], 'score': float(score)} for first, second, score in tasks.sts(data)
    ]


def spearman(weights: str, pairs: list[dict]) -> float:
    """The rank correlation of scores with the cosine of mean vectors of a pretrained model."""
    model = bert_jax.load(weights)
    first_ND, second_ND = (
        model.embed([pair['text'][side] for pair in pairs], 'mean') for side in (0, 1)
    )
    norms_N = np.linalg.norm(first_ND, axis=1) * np.linalg.norm(second_ND, axis=1)
    cosine_N = np.sum(first_ND * second_ND, axis=1) / norms_N
    return float(stats.spearmanr(cosine_N, [pair['score'] for pair in pairs]).statistic)


def config_keys(weights: str, data: pathlib.Path, steps: int) -> dict[str, object]:
    """Return the keys of configs/finetune.py:embedding; `data` has the written files."""
    return {
        'init_from': weights,
        'data.train': str(data / 'train.jsonl'),
        'data.dev': str(data / 'dev.jsonl'),
        'data.columns.scores': ('score',),
        'problem.batches': 'without_copies',  # several questions have the same sentence
        'training.epochs': 0.0,
        'training.steps': steps,
        'training.batch_size': 64,
        'training.sequence_length': 64,
        'schedule.learning_rate': 5e-4,
        'evaluation.every_steps': 0,
    }


@exit_cleanly
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--data', required=True, help='folder of the data sets')
    parser.add_argument('--init_from', required=True, help='a pretrained run')
    parser.add_argument('--steps', type=int, default=300, help='training steps of a run')
    parser.add_argument('--seeds', type=int, default=3, help='number of seeds')
    parser.add_argument('--runs', default='runs/embeddings_tiny', help='folder of the runs')
    parser.add_argument('--output', default='experiments/studies/embeddings')
    options = parser.parse_args(argv)
    data, runs = pathlib.Path(options.data), pathlib.Path(options.runs).resolve()
    pairs = scored_pairs(data)
    write_lines(runs / 'train.jsonl', questions(data))
    write_lines(runs / 'dev.jsonl', pairs)
    keys = config_keys(options.init_from, runs, options.steps)
    before = spearman(options.init_from, pairs)

    def measure(name: str, seed: int) -> runner.Measures:
        folder = runs / f'{options.steps}_{seed}'
        command = runner.main_command('configs/finetune.py:embedding', keys | {'seed': seed})
        runner.run_once(folder, command, '--config.workdir')
        return {'before': before, 'spearman': runner.read_results(folder)['held_out']['spearman']}

    name = f'{options.steps} steps of 64 questions'
    results = runner.for_all_seeds(options.seeds, [name], measure)
    settings = {key: keys[key] for key in keys if not key.startswith(('data.', 'init_from'))}
    runner.write(options, results, COLUMNS, settings=settings, suffix='_tiny')


if __name__ == '__main__':
    main()
