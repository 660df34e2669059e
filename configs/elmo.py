"""A small ELMo: a bidirectional language model of LSTM layers on the 18 books of the package.

    python -m bert_jax.main --config=configs/elmo.py

What you get: 2 layers of 2 × 128 states with cells of 512 values, trained to predict every token
from its left and from its right context. Tokens are read as characters, through convolutions and
highways (Peters et al. 2018, section 3.4), but they are subwords; for words, set data.tokenizer to
a tokenizer.json with a WordLevel model. The architecture elmo_characters has the published sizes by
default, elmo a table of tokens. Fine-tune with --config.model.head_states=mix for ELMo's learned
mix of layers.

How long it takes: not measured on an idle machine, as the loss; a step predicts each of 16 × 64
tokens twice from a vocabulary of 8,000.
"""

from ml_collections import ConfigDict

from configs import tiny


def get_config() -> ConfigDict:
    config = tiny.get_config()
    config.workdir = 'runs/elmo'
    config.model.architecture = 'elmo_characters'
    config.model.characters.num_filters = 256
    config.model.hidden_size = 256
    config.model.intermediate_size = 512
    config.model.num_heads = None
    config.model.attention_dropout = None
    config.model.hidden_dropout = 0.1
    config.objectives.mlm = 0.0
    config.objectives.nsp = 0.0
    config.objectives.bilm = 1.0
    config.data.segments = 'single'
    config.data.short_sequence_probability = 0.0
    config.training.steps = (2000,)
    config.training.sequence_length = (64,)
    config.training.batch_size = (16,)
    config.training.max_predictions = (10,)
    config.evaluation.cloze_examples = 0
    return config
