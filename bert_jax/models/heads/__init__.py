"""Heads by name. To add a head, add a file here and a line to HEADS."""

from bert_jax.models.heads.base import Head
from bert_jax.models.heads.classification import (
    MultipleChoiceHead,
    QuestionAnsweringHead,
    SequenceClassificationHead,
    TokenClassificationHead,
)
from bert_jax.models.heads.linear_chain import LinearChain
from bert_jax.models.heads.prediction import (
    DeletedTokenHead,
    MaskedLanguageModelHead,
    NextSentenceHead,
    NextTokenHead,
    ReplacedTokenHead,
)
from bert_jax.models.heads.relations import MarkedPairHead
from bert_jax.models.heads.span_boundary import SpanBoundaryHead
from bert_jax.models.heads.spans import SpanClassificationHead

# Name of a head, and of its parameters → its class.
HEADS: dict[str, type[Head]] = {
    'mlm': MaskedLanguageModelHead,
    'nsp': NextSentenceHead,
    'sop': NextSentenceHead,
    'clm': NextTokenHead,
    'rtd': ReplacedTokenHead,
    'sbo': SpanBoundaryHead,
    'permutation': ReplacedTokenHead,
    'deletion': ReplacedTokenHead,
    'deletion_token': DeletedTokenHead,
    'insertion': ReplacedTokenHead,
    'substitution': ReplacedTokenHead,
    'sequence_classification': SequenceClassificationHead,
    'token_classification': TokenClassificationHead,
    'question_answering': QuestionAnsweringHead,
    'multiple_choice': MultipleChoiceHead,
    'relation': MarkedPairHead,
    'spans': SpanClassificationHead,
    'crf': LinearChain,
}
