"""Held-out perplexity by layers, width and heads, like table 6 of BERT (Devlin et al. 2019).

python -m experiments.studies.model_size.run --texts='novels/*.txt'
"""

from experiments.studies import runner

SIZES = ((1, 64, 2), (2, 64, 2), (4, 64, 2), (2, 128, 1), (2, 128, 4), (4, 128, 4))
VARIANTS = {
    f'L {layers}, H {width}, A {heads}': {
        'model.num_layers': layers,
        'model.hidden_size': width,
        'model.num_heads': heads,
        'model.intermediate_size': 4 * width,
        'model.initializer_range': round(width**-0.5, 3),
        'schedule.learning_rate': 2.5e-3 * 128 / width,
    }
    for layers, width, heads in SIZES
}
COLUMNS = {
    'parameters': 'parameters',
    'mlm_perplexity': 'held-out perplexity',
    'mlm_accuracy': 'MLM accuracy',
}


def measure(folder):
    results = runner.read_results(folder)
    held_out = {name: results['held_out'][name] for name in ('mlm_perplexity', 'mlm_accuracy')}
    return {'parameters': results['parameters']} | held_out


def main():
    options = runner.argument_parser('model_size', __doc__, steps=2400, seeds=1).parse_args()
    runner.write(options, runner.run_all(options, VARIANTS, measure), COLUMNS)


if __name__ == '__main__':
    main()
