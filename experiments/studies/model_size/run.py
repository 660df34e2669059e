"""Held-out perplexity by layers, width and heads, like table 6 of BERT (Devlin et al. 2019).

python -m experiments.studies.model_size.run --texts='novels/*.txt'
python -m experiments.studies.model_size.run --texts='novels/*.txt' --block=rotary --steps=1000
"""

import argparse
import pathlib

from experiments.studies import runner
from experiments.studies.claims import Claim
from experiments.studies.race.entries import START, Keys, size, without

COLUMNS = {
    'parameters': 'parameters',
    'mlm_perplexity': 'held-out perplexity',
    'mlm_accuracy': 'MLM accuracy',
}
CLAIMS = (
    Claim(
        'model_size/results.json',
        default_seeds=1,
        settings={'': {'training.steps': [2400], 'objectives.nsp': 0.0}},
        ran={'*': {'masking.rate': 0.15}},
        predates=True,
    ),
    Claim(
        'model_size/results_rotary.json',
        default_seeds=1,
        settings={'': {'training.steps': [1000], 'masking.rate': 0.3}},
        ran={'*': {'masking.rate': 0.3}},
        predates=True,
    ),
)


def bert_block() -> dict[str, Keys]:
    """Return name → config keys of encoders with BERT's block: learned positions, norms after."""
    sizes = ((1, 64, 2), (2, 64, 2), (4, 64, 2), (2, 128, 1), (2, 128, 4), (4, 128, 4))
    return {
        f'L {layers}, H {width}, A {heads}': {
            'model.num_layers': layers,
            'model.hidden_size': width,
            'model.num_heads': heads,
            'model.intermediate_size': 4 * width,
            'model.initializer_range': round(width**-0.5, 3),
            'schedule.learning_rate': 2.5e-3 * 128 / width,
        }
        for layers, width, heads in sizes
    }


def rotary_block() -> dict[str, Keys]:
    """Return name → config keys of encoders with the layers of the race's entry `start`."""
    return {
        f'L {layers}, H {width}, A {width // 32}': {
            **without(START, 'schedule.warmup_fraction'),  # runner sets warmup_steps
            **size(layers, width),
            'training.batch_size': (16,),
            'schedule.learning_rate': 4e-3 * 128 / width,
            'compute.dtype': 'float32',
            'evaluation.examples': 1024,
        }
        for width in (64, 128)
        for layers in (1, 2, 4)
    }


BLOCKS = {'bert': bert_block, 'rotary': rotary_block}


def variants(block: str, steps: int) -> dict[str, Keys]:
    """Return name → config keys of the runs of a block in BLOCKS."""
    fixed = {'training.steps': (steps,), 'evaluation.every_steps': min(steps, 400)}
    return {name: {**keys, **fixed} for name, keys in BLOCKS[block]().items()}


def measure(folder: pathlib.Path) -> runner.Measures:
    results = runner.read_results(folder)
    held_out = {name: results['held_out'][name] for name in ('mlm_perplexity', 'mlm_accuracy')}
    return {'parameters': results['parameters']} | held_out


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = runner.argument_parser('model_size', __doc__, steps=2400, seeds=1)
    parser.add_argument('--block', choices=list(BLOCKS), default='bert', help='kind of layers')
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    runs = variants(options.block, options.steps)
    suffix = '' if options.block == 'bert' else f'_{options.block}'
    results = runner.run_all(options, runs, measure)
    runner.write(options, results, COLUMNS, runner.all_keys(options, runs), suffix=suffix)


if __name__ == '__main__':
    main()
