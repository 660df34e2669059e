"""A small encoder on a large collection of books, in hours on two CPU cores.

    python -m experiments.books.run --books='gutenberg/*.txt' --output=books
    python -m bert_jax.main --config=configs/books.py

The first command selects and tokenizes the books (experiments/books). What you get: four layers of
ModernBERT's block (rotary positions, gated feed-forward, pre-norm, no biases, no dropout) of width
256 with a WordPiece vocabulary of 16,000, trained on full sentences with 30 % of the tokens masked:
20,000 steps of 8,192 tokens, 164M tokens. experiments/studies/masking_rate shows the gain of 30 %
over 15 %. The recipe has not been trained in full yet.
"""

from ml_collections import ConfigDict

from configs import base


def get_config(folder: str = 'books') -> ConfigDict:
    """Return the config of a corpus in `folder`, the --output of experiments.books.run."""
    config = base.get_config()
    config.workdir = 'runs/books'
    config.data.sources = (
        f'text:{folder}/text/*.txt;held_out_by=file;language=en;license=public domain',
    )
    config.data.corpus = f'{folder}/corpus'
    config.data.tokenizer = 'train:wordpiece:16000'
    config.data.held_out_fraction = 0.005
    config.data.segments = 'full_sentences'
    config.model.architecture = 'modernbert'
    config.model.hidden_size = 256
    config.model.num_layers = 4
    config.model.num_heads = 4
    config.model.intermediate_size = 684  # as many weights as 4 · 256 without gates
    config.model.max_position_embeddings = 128
    config.model.initializer_range = 0.06  # about 1 / √hidden_size
    config.objectives.nsp = 0.0
    config.masking.rate = 0.3
    config.training.steps = (20_000,)
    config.training.sequence_length = (128,)
    config.training.batch_size = (64,)
    config.training.max_predictions = (39,)
    config.optimizer.name = 'adamw'
    config.optimizer.beta2 = 0.98
    config.schedule.name = 'linear'
    config.schedule.learning_rate = 2e-3
    config.schedule.warmup_fraction = 0.02
    config.evaluation.every_steps = 1000
    config.evaluation.examples = 1024
    config.checkpoint.every_steps = 500
    config.checkpoint.keep = 2
    return config
