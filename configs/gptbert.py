"""GPT-BERT (Charpentier and Samuel 2024, arXiv 2410.24159; ltgoslo/gpt-bert).

    python -m bert_jax.main --config=configs/gptbert.py
    python -m bert_jax.main --config=configs/gptbert.py:base

What you get: one model that fills masks and writes from left to right. A sixteenth of the rows is
causal, and masked tokens are predicted one position earlier. Masking falls from 30 to 15 %, the
batch grows from a quarter to 4.2M tokens, and sequences grow from 128 to 256 and 512 tokens.
`small` trains for 7,812 steps, `base` for 15,625.

The text is English Wikipedia instead of BabyLM's 10M or 100M words, and the encoder has a common
block instead of the published one; docs/fidelity.md lists all differences from the publication.

Not trained at full size here; tests/test_configs.py checks the published hyperparameters and
shapes, and trains a shrunk version for a few steps.
"""

from typing import NamedTuple

from ml_collections import ConfigDict

from bert_jax.errors import unknown
from configs import base


class Size(NamedTuple):
    vocabulary: int
    width: int
    heads: int
    intermediate: int
    learning_rate: float
    steps: tuple[int, int, int]  # at lengths 128, 256 and 512


SIZES = {
    'small': Size(8192, 384, 6, 1280, 1.41e-2, (5468, 1562, 782)),
    'base': Size(16384, 768, 12, 2560, 1e-2, (10_937, 3125, 1563)),
}


def get_config(size: str = 'small') -> ConfigDict:
    if size not in SIZES:
        raise unknown('size of GPT-BERT', size, SIZES)
    chosen, config = SIZES[size], base.get_config()
    config.workdir = f'runs/gptbert_{size}'
    config.data.corpus = f'corpora/wiki40b_en_bytebpe{chosen.vocabulary}'
    config.data.tokenizer = f'train:bytebpe:{chosen.vocabulary}'
    config.data.lowercase = False
    config.data.segments = 'single'
    config.model.architecture = 'neobert'
    config.model.hidden_size = chosen.width
    config.model.num_layers = 12
    config.model.num_heads = chosen.heads
    config.model.intermediate_size = chosen.intermediate
    config.model.max_position_embeddings = 512
    config.model.hidden_act = 'gelu'
    config.model.hidden_dropout = 0.1
    config.model.attention_dropout = 0.1
    config.model.norms.function = 'unbiased_layer_norm'
    config.model.prediction.shift = True
    config.objectives.mlm = 0.0
    config.objectives.nsp = 0.0
    config.objectives.mntp = 15 / 16
    config.objectives.ntp = 1 / 16
    config.mntp.causal_share = 1 / 16
    config.masking.scheme = 'spans'
    config.masking.longest_span = 3
    config.masking.rate = 0.3
    config.masking.end_rate = 0.15
    config.training.steps = chosen.steps
    config.training.sequence_length = (128, 256, 512)
    config.training.batch_size = (32768, 16384, 8192)
    config.training.max_predictions = (128, 256, 512)
    config.training.batch_ramp = (0.25, 0.5, 0.75)
    config.training.batch_ramp_share = 0.75
    config.training.z_loss = 1e-4
    config.optimizer.name = 'lamb'
    config.optimizer.beta2 = 0.98
    config.optimizer.eps = 1e-8
    config.optimizer.weight_decay = 0.1
    config.optimizer.clip_norm = 2.0
    config.optimizer.ema = 0.999
    config.schedule.name = 'cosine'
    config.schedule.learning_rate = chosen.learning_rate
    config.schedule.end_learning_rate = chosen.learning_rate / 10
    config.schedule.warmup_fraction = 0.016
    config.evaluation.cloze_examples = 0
    return config
