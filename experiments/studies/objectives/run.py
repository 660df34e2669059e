"""Compares pretraining objectives with the same text, tokens, encoder and seeds.

python -m experiments.studies.objectives.run --texts='novels/*.txt' --treebank=ud_english_ewt
"""

from experiments.studies import measures, runner
from experiments.studies.claims import Claim

SPANS = {'masking.scheme': 'spans'}
VARIANTS = {
    'MLM + NSP': {'data.segments': 'pairs', 'objectives.nsp': 1.0},
    'MLM': {},
    'MLM + SOP': {'data.segments': 'ordered_pairs', 'objectives.sop': 1.0},
    'MLM, whole words': {'masking.scheme': 'whole_words'},
    'MLM, spans': SPANS,
    'MLM, spans + SBO': SPANS | {'objectives.sbo': 1.0},
    'RTD': {'objectives.rtd': 50.0, 'masking.mask': 0.85, 'masking.random': 0.0},
    'left to right': {'objectives.mlm': 0.0, 'objectives.clm': 1.0},
}
COLUMNS = {
    'pos_accuracy': 'POS accuracy',
    'mlm_loss': 'MLM loss, single tokens at 15 %',
    'own_loss': 'loss of its own objective',
}
OWN_LOSSES = ('rtd_loss', 'clm_loss', 'mlm_loss')  # in the order of precedence
CLAIMS = (
    Claim(
        'objectives/results.json',
        default_seeds=2,
        baselines=('not trained', 'most frequent tag'),
        settings={'': {'training.steps': [2400], 'training.sequence_length': [32]}},
        ran={
            '*': {'task': 'pretraining', 'masking.rate': 0.15},
            'mlm_0': {'objectives': {'mlm': 1.0}},
            'left_to_right_0': {'objectives': {'clm': 1.0}},
            'mlm_spans_0': {'masking.scheme': 'spans'},
        },
        measured=measures.MEASURED,
        predates=True,
    ),
)


def main():
    parser = runner.argument_parser('objectives', __doc__, steps=2400, seeds=2)
    parser.add_argument('--treebank', required=True, help='folder of UD English EWT')
    options = parser.parse_args()
    compare = measures.Comparison(options.treebank)

    def measure(folder):
        held_out = runner.read_results(folder)['held_out']
        own_loss = next(held_out[name] for name in OWN_LOSSES if name in held_out)
        return compare(folder) | {'own_loss': own_loss}

    results = runner.run_all(options, VARIANTS, measure)
    baselines = compare.baselines(runner.run_folder(options, 'MLM', 0))
    settings = runner.all_keys(options, VARIANTS)
    runner.write(options, results | baselines, COLUMNS, settings, measured=measures.MEASURED)


if __name__ == '__main__':
    main()
