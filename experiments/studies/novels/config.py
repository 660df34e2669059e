"""Pretrains the BERT of configs/tiny.py on English novels in ten minutes on two CPU cores.

    python -m bert_jax.main --config=experiments/studies/novels/config.py:'novels/*.txt'

The text after the colon is a glob of files. A line that starts with "Chapter" starts a document.
"""

from configs import tiny


def get_config(files='novels/*.txt'):
    config = tiny.get_config()
    config.workdir = 'runs/novels'
    config.data.sources = (
        f'text:{files};documents=title:^\\s*(CHAPTER|Chapter)\\b;language=en;license=public domain',
    )
    config.data.corpus = 'corpora/novels'
    config.compute.dtype = 'bfloat16'
    config.stages.steps = (3000, 8000)
    return config
