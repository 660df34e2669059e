"""The recipe of configs/fast.py on a large collection of books, in two hours on one CPU core.

    python -m experiments.books.run --books='gutenberg/*.txt' --output=books
    python -m bert_jax.main --config=configs/books.py

The first command selects and tokenizes the books (experiments/books). What you get: an encoder of
4 × 256 with a WordPiece vocabulary of 16,000, which transformers opens as ModernBERT, after 6,200
steps of 32 × 128 tokens. Its scores: experiments/books/README.md.
"""

from ml_collections import ConfigDict

from configs import fast


def get_config(folder: str = 'books') -> ConfigDict:
    """Return the config of a corpus in `folder`, the --output of experiments.books.run."""
    config = fast.get_config('mini')
    config.workdir = 'runs/books'
    config.data.sources = (
        f'text:{folder}/text/*.txt;held_out_by=file;language=en;license=public domain',
    )
    config.data.corpus = f'{folder}/corpus'
    config.data.held_out_fraction = 0.005
    config.training.steps = (6_200,)
    config.training.batch_size = (32,)
    config.evaluation.every_steps = 620
    config.checkpoint.every_steps = 310
    return config
