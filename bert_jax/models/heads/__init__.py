"""What is put on top of an encoder to predict something."""

from bert_jax.models.heads.classification import (
    MultipleChoiceHead,
    SequenceClassificationHead,
    SpanHead,
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
    'SpanHead',
    'TokenClassificationHead',
]
