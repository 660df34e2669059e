"""Continues the pretraining of published weights on English novels (MLM only).

    python -m bert_jax.main --config=experiments/studies/novels/continued.py:WEIGHTS

WEIGHTS is a Hugging Face folder of a BERT with its tokenizer. The texts are novels/*.txt, as in
config.py.
"""

from experiments.studies.novels import config as novels


def get_config(weights):
    config = novels.get_config()
    config.workdir = 'runs/novels_continued'
    config.data.corpus = 'corpora/novels_continued'
    config.data.tokenizer = weights
    config.data.segments = 'single'
    config.init_from = weights
    for size in (
        'hidden_size',
        'num_layers',
        'num_heads',
        'intermediate_size',
        'max_position_embeddings',
        'initializer_range',
    ):
        config.model[size] = None  # as in the weights
    config.objectives.nsp = 0.0
    config.training.steps = (400,)
    config.training.sequence_length = (64,)
    config.training.batch_size = (32,)
    config.training.accumulation = (1,)
    config.training.max_predictions = (10,)
    config.schedule.learning_rate = 3e-4
    config.schedule.warmup_steps = 40
    config.evaluation.every_steps = 100
    config.checkpoint.every_steps = 100
    return config
