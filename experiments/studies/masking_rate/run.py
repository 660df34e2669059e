"""Compares masking rates: encoders trained at 0.10 to 0.50, all evaluated at 0.15.

python -m experiments.studies.masking_rate.run --texts='novels/*.txt' --treebank=ud_english_ewt
"""

import math

from experiments.studies import measures, runner
from experiments.studies.claims import Claim

RATES = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
(LENGTH,) = runner.COMMON['training.sequence_length']
VARIANTS = {
    f'{rate:.2f}': {'masking.rate': rate, 'training.max_predictions': (math.ceil(rate * LENGTH),)}
    for rate in RATES
}
COLUMNS = {
    'pos_accuracy': 'POS accuracy',
    'mlm_loss': 'MLM loss at 15 %',
    'own_loss': 'MLM loss at its own rate',
}
CLAIMS = (
    Claim(
        'masking_rate/results.json',
        default_seeds=2,
        baselines=('not trained', 'most frequent tag'),
        settings={'': {'training.steps': [2400], 'training.sequence_length': [32]}},
        ran={f'{rate:.2f}_?': {'masking.rate': rate, 'masking.mask': 0.8} for rate in RATES},
        measured=measures.MEASURED,
        predates=True,
    ),
)


def main():
    parser = runner.argument_parser('masking_rate', __doc__, steps=2400, seeds=2)
    parser.add_argument('--treebank', required=True, help='folder of UD English EWT')
    options = parser.parse_args()
    compare = measures.Comparison(options.treebank)

    def measure(folder):
        return compare(folder) | {'own_loss': runner.read_results(folder)['held_out']['mlm_loss']}

    results = runner.run_all(options, VARIANTS, measure)
    baselines = compare.baselines(runner.run_folder(options, '0.15', 0))
    settings = runner.all_keys(options, VARIANTS)
    runner.write(options, results | baselines, COLUMNS, settings, measured=measures.MEASURED)


if __name__ == '__main__':
    main()
