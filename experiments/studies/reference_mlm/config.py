"""Continues pretraining a published encoder on novels and Wikipedia, as a reference MLM.

    python -m bert_jax.main --config=experiments/studies/reference_mlm/config.py:WEIGHTS

WEIGHTS is a Hugging Face folder of a BERT with its tokenizer. The texts are novels/*.txt, one novel
a file, and wikitext/*.txt, in which a line ` = Title = ` starts an article.
"""

from experiments.studies.claims import Claim
from experiments.studies.novels import continued

CLAIMS = (
    Claim(
        'reference_mlm/results.json', default_seeds=1, settings={'': {'steps': 4000}}, predates=True
    ),
)


def get_config(weights):
    config = continued.get_config(weights)
    config.workdir = 'runs/reference_mlm'
    config.data.corpus = 'corpora/reference_mlm'
    articles = 'text:wikitext/*.txt;documents=title:^ = [^=].* = $;language=en;license=CC BY-SA'
    config.data.sources = (*config.data.sources, articles)
    config.training.steps = (4000,)
    config.schedule.warmup_steps = 200
    config.evaluation.every_steps = 500
    config.checkpoint.every_steps = 500
    return config
