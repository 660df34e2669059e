"""Learning curves by linguistic phenomenon of masked and of left-to-right language models.

python -m experiments.studies.linguistic_curves.run --texts='novels/*.txt' \
    --treebank=ud_english_ewt --pairs='blimp/data/*.jsonl'
"""

import json
import pathlib

import numpy as np

from bert_jax.analyze.measures import linguistic_curves
from bert_jax.files import write_json
from experiments.studies import claims, runner
from experiments.studies.claims import Claim

VARIANTS = {
    'MLM': {},
    'left to right': {'objectives.mlm': 0.0, 'objectives.clm': 1.0},
}
# Shares of the steps after which models are evaluated, in addition to the last step.
SHARES = (0, 1 / 24, 1 / 12, 1 / 6, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
PAIRS = 30  # minimal pairs of each paradigm
CLAIMS = (
    Claim(
        'linguistic_curves/results.json',
        default_seeds=1,
        ran={
            'mlm_?': {'objectives': {'mlm': 1.0}, 'masking.rate': 0.15},
            'left_to_right_?': {'objectives': {'clm': 1.0}},
        },
        predates=True,
    ),
)


def variants(steps: int, treebank: str, pairs: str) -> dict[str, dict]:
    """Return name → config keys of the runs.

    Args:
        steps: training steps.
        treebank: folder of UD English EWT.
        pairs: glob of the files of BLiMP.
    """
    keys = {
        'evaluation.every_steps': 0,
        'evaluation.steps': tuple(round(share * steps) for share in SHARES),
        'evaluation.linguistic.pairs': (pairs,),
        'evaluation.linguistic.pairs_per_paradigm': PAIRS,
        'evaluation.linguistic.treebank': (f'{treebank}/*-ud-dev.conllu*',),
        'evaluation.linguistic.isotropy': True,
        'evaluation.linguistic.max_share': 1.0,
    }
    return {name: keys | changes for name, changes in VARIANTS.items()}


def main():
    parser = runner.argument_parser('linguistic_curves', __doc__, steps=2400, seeds=1)
    parser.add_argument('--treebank', required=True, help='folder of UD English EWT')
    parser.add_argument('--pairs', required=True, help='glob of the files of BLiMP')
    options = parser.parse_args()
    runs_keys = variants(options.steps, options.treebank, options.pairs)
    results = runner.run_all(options, runs_keys, final_metrics)
    runs = {name: read_runs(options, name) for name in VARIANTS}
    unigram = runs['MLM'][0]['unigram']
    curves = {name: mean_curve(seeds) for name, seeds in runs.items()}
    folder = pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    linguistic_curves.plot(curves, unigram, folder / 'curves')
    untrained = {f'{name}, untrained': [dict(curve[0])] for name, curve in curves.items()}
    settings = runner.all_keys(options, runs_keys)
    write(options, results | untrained | {'token frequencies': [unigram]}, settings)


def write(options, results: dict[str, list[runner.Measures]], settings: dict):
    """Write results.json, and table.md: a row for each metric, a column for each variant."""
    folder, summary = pathlib.Path(options.output), runner.summaries(results)
    metrics = [name for name in summary['MLM'] if linguistic_curves.is_linguistic(name)]
    rows = {
        name.removeprefix('pairs/').replace('_', ' '): {
            variant: measures[name] for variant, measures in summary.items() if name in measures
        }
        for name in [*metrics, 'time_share']
    }
    table = runner.table(rows, {variant: variant for variant in summary})
    record = {'settings': settings, 'variants': summary, 'ran': claims.ran(options.runs)}
    write_json(folder / 'results.json', record, indent=1)
    (folder / 'table.md').write_text(table, encoding='utf-8')
    print(table)


def final_metrics(folder: pathlib.Path) -> runner.Measures:
    """The final held-out metrics, and the total seconds and share of linguistic evaluations."""
    evaluations = linguistic_curves.read_records(folder)
    seconds = sum(record['linguistic_seconds'] for record in evaluations)
    results = runner.read_results(folder)
    share = seconds / (seconds + results['train_seconds'])
    return results['held_out'] | {'linguistic_seconds': seconds, 'time_share': share}


def read_runs(options, name: str) -> list[dict]:
    """The linguistic evaluations of all seeds of a variant."""
    folders = [runner.run_folder(options, name, seed) for seed in range(options.seeds)]
    return [json.loads((folder / 'linguistic.json').read_text()) for folder in folders]


def mean_curve(runs: list[dict]) -> linguistic_curves.Records:
    """The means over the seeds of all metrics at each step."""
    records = zip(*(run['evaluations'] for run in runs), strict=True)
    return [
        {
            name: float(np.mean([record[name] for record in same_step]))
            for name, value in same_step[0].items()
            if name != 'kind'
        }
        for same_step in records
    ]


if __name__ == '__main__':
    main()
