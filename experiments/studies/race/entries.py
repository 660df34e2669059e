"""The entries of the race: BERT's recipe, a starting recipe, and changes of it."""

import math
from collections.abc import Mapping

Keys = Mapping[str, object]  # config key → value, or a function of the number of steps

COMMON: Keys = {
    'data.corpus': 'corpora/novels',
    'compute.dtype': 'float32',
    'evaluation.examples': 2048,
    'evaluation.cloze_examples': 0,
    'logging.every_steps': 50,
}
# configs/tiny.py: pairs of segments with next sentence prediction, at length 32 and then 64.
BERT: Keys = {'training.steps': (1, 3)}
BLOCK: Keys = {  # rotary positions, norms before, gated feed-forward, no biases, no dropout
    'model.architecture': 'rotary_prenorm',
    'model.intermediate_size': 341,  # as many weights as 4 · 128 without gates
}
START: Keys = BLOCK | {
    'data.segments': 'single',
    'objectives.nsp': 0.0,
    'training.steps': (1,),
    'training.sequence_length': (64,),
    'training.batch_size': (32,),
    'training.accumulation': (1,),
    'training.max_predictions': (20,),
    'masking.rate': 0.3,
    'optimizer.name': 'adamw',
    'optimizer.beta2': 0.98,
    'schedule.name': 'linear',
    'schedule.learning_rate': 4e-3,
    'schedule.warmup_fraction': 0.02,
}


# configs/fast.py:tiny: second moments over 1,000 steps instead of 50.
FAST: Keys = START | {'optimizer.beta2': 0.999}
SQUARED_RELU: Keys = {
    'model.feedforward': 'dense',
    'model.hidden_act': 'relu_squared',
    'model.intermediate_size': 512,
}
LAMB: Keys = START | {'optimizer.name': 'lamb', 'schedule.learning_rate': 1.4e-2}
WARMUP: Keys = {'schedule.warmup_fraction': 0.1}
HIGHER_RATE: Keys = {'schedule.learning_rate': 6e-3}


def size(layers: int, width: int) -> Keys:
    """Sizes of a gated encoder whose heads have 32 dimensions."""
    return {
        'model.num_layers': layers,
        'model.hidden_size': width,
        'model.num_heads': width // 32,
        'model.intermediate_size': round(8 / 3 * width),
        'model.initializer_range': round(0.9 * width**-0.5, 3),
    }


def without(entry: Keys, *names: str) -> Keys:
    """The keys without some, such as a masking rate for an objective that refuses one."""
    return {name: value for name, value in entry.items() if name not in names}


def _shape(length: int, batch: int) -> Keys:
    return {
        'training.sequence_length': (length,),
        'training.batch_size': (batch,),
        'training.max_predictions': (math.ceil(0.3 * length),),
    }


def _rate(rate: float) -> Keys:
    return {'masking.rate': rate, 'training.max_predictions': (math.ceil(rate * 64),)}


ENTRIES: dict[str, Keys] = {
    'BERT': BERT,
    'BERT without NSP': BERT | {'data.segments': 'single', 'objectives.nsp': 0.0},
    'start': START,
    'fast': FAST,
    # changes of fast
    'fast, warmup 10 %': FAST | WARMUP,
    'fast, warmup 10 %, rate 6e-3': FAST | WARMUP | HIGHER_RATE,
    'fast, squared ReLU without gate': FAST | SQUARED_RELU,
    'fast, squared ReLU without gate, warmup 10 %': FAST | SQUARED_RELU | WARMUP,
    'fast, squared ReLU without gate, warmup 10 %, rate 6e-3': FAST
    | SQUARED_RELU
    | WARMUP
    | HIGHER_RATE,
    'fast, masking 0.2': FAST | _rate(0.2),
    'fast, masking 0.3 to 0.15': FAST | {'masking.end_rate': 0.15},
    # changes of start:
    # block
    'norms after': START | {'model.norms.placement': 'post'},
    'norms before and after': START | {'model.norms.placement': 'both'},
    'learned positions': START
    | {
        'model.architecture': 'bert',
        'model.norms.placement': 'pre',
        'model.norms.function': 'unbiased_layer_norm',
        'model.feedforward': 'gated',
        'model.biases.attention': 'none',
        'model.biases.feed_forward': 'none',
        'model.scaled_output_init': True,
        'model.type_vocab_size': 0,
        'model.pooler': False,
    },
    'ALiBi': START | {'model.architecture': 'mosaicbert', 'model.norms.placement': 'pre'},
    'relative positions': START
    | {
        'model.architecture': 'deberta',
        'model.norms.placement': 'pre',
        'model.intermediate_size': 512,
    },
    'RMS norm': START | {'model.norms.function': 'rms_norm'},
    'queries and keys normalized': START | {'model.attention.qk_norm': True},
    'squared ReLU without gate': START | SQUARED_RELU,
    'GELU without gate': START | {'model.feedforward': 'dense', 'model.intermediate_size': 512},
    'SwiGLU': START | {'model.hidden_act': 'silu'},
    'biases': START | {'model.biases.attention': 'all', 'model.biases.feed_forward': 'all'},
    'outputs start at zero': START
    | {'model.zero_output_init': True, 'model.scaled_output_init': False},
    'dropout 0.1': START | {'model.hidden_dropout': 0.1, 'model.attention_dropout': 0.1},
    'head without dense layer': START | {'model.prediction.transform': False},
    'soft cap 15': START | {'model.prediction.soft_cap': 15.0},
    'z-loss': START | {'training.z_loss': 1e-4},
    '2 heads': START | {'model.num_heads': 2},
    # masks
    'masking 0.15': START | _rate(0.15),
    'masking 0.2': START | _rate(0.2),
    'masking 0.4': START | _rate(0.4),
    'masking 0.3 to 0.15': START | {'masking.end_rate': 0.15},
    'masking 0.4 to 0.15': START | _rate(0.4) | {'masking.end_rate': 0.15},
    'adaptive masking': START | {'masking.scheme': 'adaptive'},
    'only [MASK]': START | {'masking.mask': 1.0, 'masking.random': 0.0},
    'whole words': START | {'masking.scheme': 'whole_words'},
    # batch
    '16 × 64': START | _shape(64, 16),
    '64 × 64': START | _shape(64, 64),
    '64 × 32': START | _shape(32, 64),
    '16 × 128': START | _shape(128, 16) | {'model.max_position_embeddings': 128},
    '64 × 32, then 32 × 64': START
    | {
        'training.steps': (7, 3),
        'training.sequence_length': (32, 64),
        'training.batch_size': (64, 32),
        'training.accumulation': (1, 1),
        'training.max_predictions': (10, 20),
    },
    '32 × 64, then 96 × 64': START
    | {
        'training.steps': (6, 1),
        'training.sequence_length': (64, 64),
        'training.batch_size': (32, 96),
        'training.accumulation': (1, 1),
        'training.max_predictions': (20, 20),
    },
    # optimizer
    'rate 2e-3': START | {'schedule.learning_rate': 2e-3},
    'rate 8e-3': START | {'schedule.learning_rate': 8e-3},
    'rate 16e-3': START | {'schedule.learning_rate': 16e-3},
    'cosine': START | {'schedule.name': 'cosine'},
    '1 − √t': START | {'schedule.name': 'sqrt'},
    'constant, last 40 % linear': START
    | {'schedule.decay_steps': lambda steps: round(0.4 * steps)},
    'second moments over 0.95': START | {'optimizer.beta2': 0.95},
    'no weight decay': START | {'optimizer.weight_decay': 0.0},
    'weight decay 0.1': START | {'optimizer.weight_decay': 0.1},
    'Muon': START | {'optimizer.name': 'muon'},
    'Muon, 4 × rate of kernels': START | {'optimizer.name': 'muon', 'optimizer.muon_rate': 4.0},
    'LAMB': LAMB,
    'LAMB, rate 1e-2': LAMB | {'schedule.learning_rate': 1e-2},
    'LAMB, rate 2e-2': LAMB | {'schedule.learning_rate': 2e-2},
    'LAMB, second moments over 0.999': LAMB | {'optimizer.beta2': 0.999},
    'LAMB, squared ReLU without gate': LAMB | SQUARED_RELU,
    'LAMB, head without dense layer': LAMB | {'model.prediction.transform': False},
    'EMA 0.99': START | {'optimizer.ema': 0.99},
    # size
    '3 × 128': START | size(3, 128),
    '4 × 128': START | size(4, 128),
    '1 × 192': START | size(1, 192),
    '2 × 192': START | size(2, 192),
    '2 × 256': START | size(2, 256),
    '3 × 192': START | size(3, 192),
    # vocabulary: compared per byte
    'vocabulary 4,000': START
    | {'data.tokenizer': 'train:wordpiece:4000', 'data.corpus': 'corpora/novels_4000'},
    'vocabulary 16,000': START
    | {'data.tokenizer': 'train:wordpiece:16000', 'data.corpus': 'corpora/novels_16000'},
    # objectives
    'with NSP': START | {'data.segments': 'pairs', 'objectives.nsp': 1.0, 'model.pooler': True},
    'GPT-BERT': START
    | {
        'objectives.mlm': 0.0,
        'objectives.mntp': 15 / 16,
        'objectives.ntp': 1 / 16,
        'mntp.causal_share': 1 / 16,
        'model.prediction.shift': True,
        'training.max_predictions': (64,),
    },
    'ELECTRA': START | {'objectives.rtd': 50.0, 'masking.mask': 0.85, 'masking.random': 0.0},
}
