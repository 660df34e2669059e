"""The ways of pretraining that are compared, and what their fine-tuning heads read.

The encoders have two layers of 128 states or about as many parameters, and the same vocabulary. All
follow the recipe `start` of experiments/studies/race, because BERT's learned positions stay on the
plateau of token frequencies for the few steps of this study.
"""

from typing import NamedTuple

from experiments.studies import runner
from experiments.studies.claims import BOTH, LEFT_TO_RIGHT, Claim
from experiments.studies.race.entries import START, Keys, without

LENGTH = 64  # tokens of a row, in pretraining and in fine-tuning
COMMON: Keys = (
    runner.COMMON
    | without(START, 'masking.rate')
    | {
        'objectives.mlm': 0.0,
        'training.sequence_length': (LENGTH,),
        'training.batch_size': (16,),
        'compute.dtype': 'float32',
        'evaluation.examples': 512,
        'checkpoint.keep': 1,
    }
)
MLM: Keys = {'objectives.mlm': 1.0, 'masking.rate': START['masking.rate']}
PRETRAINING: dict[str, Keys] = {
    'MLM': MLM,
    'LTR': {'objectives.clm': 1.0},
    'biLM': {  # two directions of 64 states each, with cells of 256 values
        'objectives.bilm': 1.0,
        'model.architecture': 'elmo',
        'model.intermediate_size': 256,
        'model.num_heads': None,
        'model.attention_dropout': None,
    },
    'permutation': {
        'objectives.plm': 1.0,
        'model.architecture': 'xlnet',
        'model.intermediate_size': 512,  # without gates
        'masking.scheme': 'spaced_ngrams',
        'masking.rate': 1 / 6,
        'masking.longest_ngram': 5,
        'training.max_predictions': (11,),
        'plm.block_size': 32,
    },
    'ELECTRA': MLM | {'objectives.rtd': 50.0, 'masking.mask': 0.85, 'masking.random': 0.0},
    'diffusion': {'objectives.diffusion': 1.0, 'training.max_predictions': (LENGTH,)},
    # One step with a learning rate near zero.
    'not trained': MLM | {'training.steps': (1,), 'schedule.learning_rate': 1e-12},
}


class Variant(NamedTuple):
    """A row of the table.

    Attributes:
        pretraining: a name in PRETRAINING.
        head: config keys of fine-tuning, for the states that the head reads.
    """

    pretraining: str
    head: Keys = {}


MIX: Keys = {'model.head_states': 'mix'}
LSTM: Keys = {'model.head_lstm.layers': 1, 'model.head_lstm.size': 128}
VARIANTS: dict[str, Variant] = {
    'not trained': Variant('not trained'),
    'MLM': Variant('MLM'),
    'MLM + mix': Variant('MLM', MIX),
    'MLM + BiLSTM': Variant('MLM', LSTM),
    'LTR': Variant('LTR'),
    'LTR + BiLSTM': Variant('LTR', LSTM),
    'biLM + mix': Variant('biLM', MIX),
    'permutation': Variant('permutation'),
    'ELECTRA': Variant('ELECTRA'),
    'diffusion': Variant('diffusion'),
}
# Variant → the variants it is compared with, by the differences of runs with the same seed.
DIFFERENCES: dict[str, tuple[str, ...]] = {
    'LTR + BiLSTM': ('LTR', 'MLM', 'MLM + BiLSTM'),
    'MLM + BiLSTM': ('MLM',),
    'MLM + mix': ('MLM',),
    'LTR': ('MLM',),
    'biLM + mix': ('MLM', 'MLM + mix'),
    'permutation': ('MLM',),
    'ELECTRA': ('MLM',),
    'diffusion': ('MLM',),
}
# Pretraining whose model gives the probability of a sentence. The biLM and the permutation model
# have no such score in this package, and ELECTRA's encoder predicts no tokens.
SCORES_SENTENCES = ('MLM', 'LTR', 'diffusion', 'not trained')

_ABLATION = {
    '*/downstream/*fine_tuned*': {'transfer.trainable': 'all'},
    'mlm_*/downstream/*': {'attention': BOTH},
    'ltr_*/downstream/*': {'attention': LEFT_TO_RIGHT},
    '*/downstream/*bilstm*': {'model.head_lstm.layers': 1},
}
_RAN = _ABLATION | {
    '*/downstream/*frozen*': {'transfer.trainable': 'heads'},
    '*/downstream/*mix*': {'model.head_states': 'mix'},
}
_SETTINGS = {
    'MLM': {'objectives.mlm': 1.0, 'masking.rate': 0.3, 'training.steps': [1000]},
    'LTR': {'objectives.clm': 1.0, 'objectives.mlm': 0.0, 'training.steps': [1000]},
}
CLAIMS = (
    Claim(
        'comparison/ablation/results_1000steps.json',
        default_seeds=3,
        settings=_SETTINGS,
        ran=_ABLATION,
    ),
    Claim(
        'comparison/rows/results_1000steps.json',
        default_seeds=2,
        settings={'MLM': _SETTINGS['MLM']},
        ran=_RAN,
        predates=True,
    ),
    Claim(
        'comparison/seed_0/results_1000steps.json',
        default_seeds=1,
        settings={'MLM': _SETTINGS['MLM']},
        ran=_RAN,
        predates=True,
    ),
)
