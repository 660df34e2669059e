"""Pretrains the BERT of configs/tiny.py on English novels in ten minutes on two CPU cores.

    python -m bert_jax.main --config=experiments/studies/novels/config.py:'novels/*.txt'

The text after the colon is a glob of files. A line that starts with "Chapter" starts a document.
Whole novels are held out, so that the model is evaluated on novels it was not trained on.
"""

from configs import tiny
from experiments.studies.claims import Claim

CLAIMS = (
    Claim('novels/results.json', default_seeds=1, settings={'': {'steps': 11_000}}, predates=True),
)


def get_config(files='novels/*.txt'):
    config = tiny.get_config()
    config.workdir = 'runs/novels'
    config.data.sources = (
        f'text:{files};documents=title:^\\s*(CHAPTER|Chapter)\\b;held_out_by=file;language=en;'
        'license=public domain',
    )
    config.data.corpus = 'corpora/novels'
    config.compute.dtype = 'bfloat16'
    config.training.steps = (3000, 8000)
    return config
