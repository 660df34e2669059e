"""The kinds of fine-tuning tasks by name; one line each in this table."""

from bert_jax.tasks.problems.base import Problem
from bert_jax.tasks.problems.classification import Choice, Classification, Regression
from bert_jax.tasks.problems.question_answering import QuestionAnswering
from bert_jax.tasks.problems.relations import Relations
from bert_jax.tasks.problems.spans import Spans
from bert_jax.tasks.problems.tagging import Tagging

PROBLEMS: dict[str, type[Problem]] = {
    'choice': Choice,
    'classification': Classification,
    'coreference': Relations,
    'question_answering': QuestionAnswering,
    'regression': Regression,
    'relation': Relations,
    'spans': Spans,
    'tagging': Tagging,
    'word_in_context': Relations,
}
