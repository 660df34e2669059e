"""A recipe for small budgets, from a race of recipes on two CPU cores; in four sizes.

    python -m bert_jax.main --config=configs/fast.py
    python -m bert_jax.main --config=configs/fast.py:mini --config.training.minutes=60

What you get: ModernBERT's block (rotary positions, norms before the sublayers, gated feed-forward,
no biases), which transformers opens; 30 % of the tokens are masked, without next sentence
prediction. The parts were chosen in experiments/studies/race at the size `tiny`, where the loss of
BERT's recipe is 0.35 nats higher after ten minutes. All sizes have the same ratios; the learning
rate is inversely proportional to the width, which suits two layers of 64, 128 and 256 (same
folder). Only `tiny` has been trained.

`tiny` and `mini` read the 18 English books that ship with the package, `small` and `base` English
Wikipedia; docs/data.md shows how to train on your own text. `training.minutes` ends any of them
after a time, with a learning rate that falls to zero at the end.
"""

import math
from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax.errors import unknown
from configs import base


class Size(NamedTuple):
    layers: int
    width: int
    heads: int
    vocabulary: int
    steps: int
    batch: int
    length: int


SIZES = {
    'tiny': Size(2, 128, 4, 8000, 2800, 32, 64),
    'mini': Size(4, 256, 4, 16_000, 12_000, 64, 128),
    'small': Size(8, 384, 6, 32_000, 60_000, 256, 128),
    'base': Size(12, 768, 12, 32_000, 100_000, 512, 256),
}


def get_config(size: str = 'tiny') -> ConfigDict:
    if size not in SIZES:
        raise unknown('size of configs/fast.py', size, SIZES)
    chosen, config = SIZES[size], base.get_config()
    config.workdir = f'runs/fast_{size}'
    config.data.tokenizer = f'train:wordpiece:{chosen.vocabulary}'
    config.data.segments = 'single'
    if size in ('tiny', 'mini'):
        config.data.sources = ('sample',)
        config.data.held_out_fraction = 0.05
        config.data.corpus = f'corpora/fast_{size}'
        config.compute.dtype = 'float32'  # 'bfloat16' is faster on some CPUs and slower on others
    else:
        config.data.corpus = f'corpora/wiki40b_en_wordpiece{chosen.vocabulary}'
    config.model.architecture = 'modernbert'
    config.model.hidden_size = chosen.width
    config.model.num_layers = chosen.layers
    config.model.num_heads = chosen.heads
    config.model.intermediate_size = round(8 / 3 * chosen.width)  # 4 · width without gates
    config.model.max_position_embeddings = chosen.length
    config.model.attention.theta = 10_000.0
    config.model.initializer_range = round(0.9 * chosen.width**-0.5, 3)
    config.objectives.nsp = 0.0
    config.masking.rate = 0.3
    config.training.steps = (chosen.steps,)
    config.training.sequence_length = (chosen.length,)
    config.training.batch_size = (chosen.batch,)
    config.training.accumulation = (1,)
    config.training.max_predictions = (math.ceil(0.3 * chosen.length),)
    config.optimizer.name = 'adamw'
    config.optimizer.beta2 = 0.999
    config.schedule.name = 'linear'
    config.schedule.learning_rate = 4e-3 * 128 / chosen.width
    config.schedule.warmup_fraction = 0.02
    config.evaluation.every_steps = chosen.steps // 8
    config.evaluation.examples = 1024
    config.checkpoint.every_steps = chosen.steps // 8
    config.checkpoint.keep = 2
    config.logging.every_steps = 20
    return config
