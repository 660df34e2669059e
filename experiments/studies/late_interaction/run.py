"""Compares late interaction with one vector for each text, trained on the same questions.

    python -m experiments.studies.late_interaction.run --data=FOLDER --weights=FOLDER

Both start from all-MiniLM-L6-v2 and learn from the same questions of QAMR and the sentences that
answer them, with the same batch size, learning rate, steps and seeds. Finished runs are kept, so
the command can be repeated.
"""

import argparse
import pathlib

from bert_jax.errors import exit_cleanly
from experiments.studies import claims, runner
from experiments.studies.claims import Claim
from experiments.studies.embeddings import tasks

COLUMNS = {'mrr': 'MRR', 'accuracy': 'accuracy'}
CLAIMS = (
    Claim(
        'late_interaction/results.json',
        default_seeds=3,
        settings={'': {'steps': 40, 'examples': 1000, 'seeds': 3}},
        ran={'*': {'transfer.trainable': 'all'}},
    ),
)
# Variant → parameter of configs/finetune.py, and the keys of `problem`.
VARIANTS: dict[str, tuple[str, dict]] = {
    'one vector': ('embedding', {'problem.loss': 'in_batch'}),
    'late interaction': (
        'late_interaction',
        {'problem.loss': 'contrastive', 'problem.skip_punctuation': True},
    ),
    'late interaction, expansion': (
        'late_interaction',
        {
            'problem.loss': 'contrastive',
            'problem.skip_punctuation': True,
            'problem.expansion': 32,
        },
    ),
}


def run(variant: str, seed: int, table: pathlib.Path, options: argparse.Namespace) -> dict:
    """Train a variant; return its measures on the held-out questions."""
    kind, changed = VARIANTS[variant]
    keys = tasks.config_keys('qamr', table, options.weights, options.steps) | changed
    folder = pathlib.Path(options.runs) / f'{variant}_{options.steps}_{seed}'.replace(' ', '_')
    command = runner.main_command(f'configs/finetune.py:{kind}', keys | {'seed': seed})
    runner.run_once(folder, command, '--config.workdir')
    held_out = runner.read_results(folder)['held_out']
    return {name: held_out[name] for name in COLUMNS}


@exit_cleanly
def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--data', required=True, help='folder of the data sets')
    parser.add_argument('--weights', required=True, help='folder of all-MiniLM-L6-v2')
    parser.add_argument('--examples', type=int, default=1000, help='questions, at most')
    parser.add_argument('--steps', type=int, default=40, help='training steps of a run')
    parser.add_argument('--seeds', type=int, default=3, help='number of seeds')
    parser.add_argument('--variants', default=';'.join(VARIANTS), help='names, with semicolons')
    parser.add_argument('--runs', default='runs/late_interaction', help='folder of the runs')
    parser.add_argument('--output', default='experiments/studies/late_interaction')
    options = parser.parse_args(argv)
    table = (pathlib.Path(options.runs) / f'qamr_{options.examples}.csv').resolve()
    tasks.write_table('qamr', pathlib.Path(options.data), table, options.examples)
    results: dict[str, list[dict]] = {}
    for seed in range(options.seeds):
        for variant in options.variants.split(';'):
            results.setdefault(variant, []).append(run(variant, seed, table, options))
    summary, folder = runner.summaries(results), pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    settings = {'steps': options.steps, 'examples': options.examples, 'seeds': options.seeds}
    record = {'settings': settings, 'runs': summary, 'ran': claims.ran(options.runs)}
    runner.write_json(folder / 'results.json', record, indent=1)
    text = runner.table(summary, COLUMNS)
    (folder / 'table.md').write_text(text, encoding='utf-8')
    print(text)


if __name__ == '__main__':
    main()
