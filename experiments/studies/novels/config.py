"""tiny.py's BERT on English novels, ten minutes on two CPU cores.

    python -m bert_jax.main --config=experiments/studies/novels/config.py:'novels/*.txt'

What follows the colon says which files; a line that begins with "Chapter" starts a document.
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
