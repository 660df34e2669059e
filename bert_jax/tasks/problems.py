"""The kinds of fine-tuning tasks by name; one line each in this table."""

from bert_jax.tasks.classification import Choice, Classification, Regression
from bert_jax.tasks.problem import Problem
from bert_jax.tasks.question_answering import QuestionAnswering
from bert_jax.tasks.relations import Relations
from bert_jax.tasks.spans import Spans
from bert_jax.tasks.tagging import Tagging

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
