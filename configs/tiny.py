"""A small BERT on 18 English books that ship with the package, on a laptop CPU.

    python -m bert_jax.main --config=configs/tiny.py

What you get: 2 layers of width 128 with a WordPiece vocabulary of 8,000, trained with masked
language modeling and next sentence prediction; MLM loss about 4.55 nats on two held-out books
(predicting by frequency: 6.30), NSP accuracy about 0.59.

How long it takes: 2 min 48 s on two EPYC cores, training 2 min 28 s; 1.6 GB of memory. Not run on
GPU or TPU.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    config = base.get_config()
    config.workdir = 'runs/tiny'
    config.data.sources = ('sample',)
    config.data.corpus = 'corpora/tiny'
    config.data.tokenizer = 'train:wordpiece:8000'
    config.data.held_out_fraction = 0.05
    config.model.architecture = 'bert'
    config.model.hidden_size = 128
    config.model.num_layers = 2
    config.model.num_heads = 4
    config.model.intermediate_size = 512
    config.model.max_position_embeddings = 64
    config.model.initializer_range = 0.08  # about 1 / √hidden_size: attention develops sooner
    config.model.hidden_dropout = 0.0
    config.model.attention_dropout = 0.0
    config.training.steps = (1000, 3000)
    config.training.sequence_length = (32, 64)
    config.training.batch_size = (64, 32)
    config.training.max_predictions = (5, 10)
    config.optimizer.beta2 = 0.98
    config.compute.dtype = 'float32'  # 'bfloat16' is about 1.4 times as fast on CPUs with AMX
    config.schedule.name = 'linear'
    config.schedule.learning_rate = 2e-3
    config.schedule.warmup_fraction = 100 / 4000
    config.evaluation.every_steps = 500
    config.evaluation.examples = 1024
    config.checkpoint.every_steps = 500
    config.checkpoint.keep = 2
    config.logging.every_steps = 20
    return config
