"""What an encoder is pretrained on: one file an objective, one line each in this table."""

from bert_jax.objectives.mlm import MaskedLanguageModel
from bert_jax.objectives.nsp import NextSentencePrediction

OBJECTIVES = {
    'mlm': MaskedLanguageModel,
    'nsp': NextSentencePrediction,
}
