"""Heads by name. To add a head, add a file here and a line to HEADS."""

from bert_jax.lazy_table import LazyTable
from bert_jax.models.heads.base import Head

# Name of a head, and of its parameters → its class.
HEADS: LazyTable[type[Head]] = LazyTable(
    {
        'mlm': 'bert_jax.models.heads.prediction:MaskedLanguageModelHead',
        'nsp': 'bert_jax.models.heads.prediction:NextSentenceHead',
        'sop': 'bert_jax.models.heads.prediction:NextSentenceHead',
        'clm': 'bert_jax.models.heads.prediction:NextTokenHead',
        'rtd': 'bert_jax.models.heads.prediction:ReplacedTokenHead',
        'sbo': 'bert_jax.models.heads.span_boundary:SpanBoundaryHead',
        'permutation': 'bert_jax.models.heads.prediction:ReplacedTokenHead',
        'deletion': 'bert_jax.models.heads.prediction:ReplacedTokenHead',
        'deletion_token': 'bert_jax.models.heads.prediction:DeletedTokenHead',
        'insertion': 'bert_jax.models.heads.prediction:ReplacedTokenHead',
        'substitution': 'bert_jax.models.heads.prediction:ReplacedTokenHead',
        'sequence_classification': (
            'bert_jax.models.heads.classification:SequenceClassificationHead'
        ),
        'token_classification': 'bert_jax.models.heads.classification:TokenClassificationHead',
        'question_answering': 'bert_jax.models.heads.classification:QuestionAnsweringHead',
        'multiple_choice': 'bert_jax.models.heads.classification:MultipleChoiceHead',
        'relation': 'bert_jax.models.heads.relations:MarkedPairHead',
        'spans': 'bert_jax.models.heads.spans:SpanClassificationHead',
        'crf': 'bert_jax.models.heads.linear_chain:LinearChain',
    }
)
