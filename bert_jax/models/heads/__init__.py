"""Heads: modules that turn encoder states into predictions."""

from bert_jax.models.heads.classification import (
    MultipleChoiceHead,
    QuestionAnsweringHead,
    SequenceClassificationHead,
    TokenClassificationHead,
)
from bert_jax.models.heads.prediction import (
    MaskedLanguageModelHead,
    NextSentenceHead,
    ReplacedTokenHead,
)

__all__ = [
    'MaskedLanguageModelHead',
    'MultipleChoiceHead',
    'NextSentenceHead',
    'ReplacedTokenHead',
    'SequenceClassificationHead',
    'QuestionAnsweringHead',
    'TokenClassificationHead',
]
