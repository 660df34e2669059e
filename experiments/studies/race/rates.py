"""Whether the learning rate of the winning recipe suits other sizes.

python -m experiments.studies.race.rates --texts='novels/*.txt'

Encoders of three widths are trained with half, all and twice the learning rate of configs/fast.py
for the same number of steps, and evaluated as in the race.
"""

import argparse
import pathlib

from bert_jax.errors import exit_cleanly
from bert_jax.interop import loading
from experiments.studies import measures, runner
from experiments.studies.race.entries import COMMON, FAST, size

SIZES = ((2, 64), (2, 128), (2, 256))  # layers, width
FACTORS = (0.5, 1, 2)  # of the rate of configs/fast.py, inversely proportional to the width


def masked_loss(folder: pathlib.Path) -> runner.Measures:
    """The held-out loss at 15 % masks of a finished run, nats per token."""
    model = loading.load_checkpoint(folder)
    return {'mlm_loss': measures.MaskedLoss(model)(model)}


def measure(options: argparse.Namespace) -> dict[str, list[runner.Measures]]:
    """Train and measure every size with every rate.

    Returns:
        Size and factor of the rate → the measures of each seed.
    """
    keys = {
        f'{layers} × {width}, {factor:g} × rate': {
            **COMMON,
            **FAST,
            **size(layers, width),
            'training.steps': (options.steps,),
            'evaluation.every_steps': 0,
            'schedule.learning_rate': factor * 4e-3 * 128 / width,
        }
        for layers, width in SIZES
        for factor in FACTORS
    }

    def measure_run(name: str, seed: int) -> runner.Measures:
        folder = runner.run_folder(options, name, seed)
        runner.train(folder, options.texts, keys[name] | {'seed': seed})
        return runner.cached_measures(folder, masked_loss)

    return runner.for_all_seeds(options.seeds, keys, measure_run)


@exit_cleanly
def main() -> None:
    parser = runner.argument_parser('race', __doc__, seeds=1, steps=300)
    options = parser.parse_args()
    results = measure(options)
    columns = {'mlm_loss': 'MLM loss at 15 %, nats per token'}
    runner.write(options, results, columns, settings={'steps': options.steps}, suffix='_rates')


if __name__ == '__main__':
    main()
