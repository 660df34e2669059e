"""What fine-tuned models answer: classes, tags, spans, answers, orders of documents."""

import dataclasses
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bert_jax.answers.base import Question
from bert_jax.answers.input_rows import Fields, InputRow
from bert_jax.errors import UserError
from bert_jax.flag_parser import flag
from bert_jax.inference.inputs import PredictionOptions
from bert_jax.labels import word_spans
from bert_jax.labels.formats import FORMATS
from bert_jax.text import text_files
from bert_jax.types import JsonRecord

if TYPE_CHECKING:
    from bert_jax.inference.predictor import Predictor

WORDS = 'a text, or {"words": ["...", ...]} (or "tokens") a line'
LIKE_RUN = 'lines as in dev/predictions.jsonl of the run, without "gold"'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finetuned(Question):
    """A task of a fine-tuned model; see `Predictor.predict`."""

    summary = 'what a fine-tuned model predicts'
    reads = 'a text, or a JSON object with the fields of an example, a line'
    writes = LIKE_RUN
    fields = Fields(('text',))

    def answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterator[JsonRecord]:
        names = [name for name in PredictionOptions._fields if hasattr(self, name)]
        options = PredictionOptions(**{name: getattr(self, name) for name in names})
        yield from model.predict(self.task, [row.values for row in rows], options)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classify(Finetuned):
    """The class of a text, of a pair or of marked words; a number for regression."""

    summary = (
        'classes or numbers (problems classification, multi_label, regression, multi_regression, '
        'multiple_choice, relation, word_in_context, coreference)'
    )
    reads = (
        'a text, TEXT<tab>TEXT for a pair, or {"text": "...", "text2": "..."} a line; '
        'multiple_choice: {"premise": "...", "choices": ["...", ...]}; relation, word_in_context '
        'and coreference: {"text": "...", "marks": [[start, end], [start, end]]}, in characters; '
        'with "text2" the second mark is in it'
    )
    fields = Fields(('text', 'text2'), required=('text',))

    probabilities: bool = flag('write the probabilities of all classes', False)
    long_texts: str | None = flag(
        'truncate (default), or windows whose probabilities are averaged',
        None,
        choices=('windows', 'truncate'),
    )
    overlap: float = flag(
        'share of a window that the next window repeats, with --long_texts=windows', 0.25
    )

    def check(self) -> None:
        if self.overlap != Classify.overlap and self.long_texts != 'windows':
            raise UserError('--overlap of classify needs --long_texts=windows')
        super().check()


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfWords(Finetuned):
    """A task whose texts are split into words."""

    reads = WORDS
    fields = Fields(('text',), required=('text',))

    words: str | None = flag(
        'split text into words at whitespace, or also at punctuation, or into characters (default: '
        'as in the training data)',
        None,
        choices=tuple(word_spans.SPLITTERS),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tag(OfWords):
    """The tag of each word."""

    summary = 'a tag for each word, and the entities that tags mark (problem tagging)'

    probabilities: bool = flag('write the probabilities of all tags', False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Roles(OfWords):
    """The arguments of a predicate."""

    summary = 'the arguments of a predicate (problem semantic_roles)'
    reads = (
        '{"words": ["...", ...], "predicate": 2}, the index of one of the words (or "text" instead '
        'of "words") a line'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Constituents(OfWords):
    """The constituency tree of each sentence."""

    summary = 'trees in brackets (problem constituency)'
    writes = f'{LIKE_RUN}; an --output named .mrg, .ptb or .brackets has one tree a line'

    def to_text(self, record: Any) -> str:
        suffix = os.path.splitext(text_files.uncompressed_name(self.output))[1].lower()
        if suffix in FORMATS['brackets'].suffixes and not self.tuned:
            return str(record['predicted']) + '\n'
        return super().to_text(record)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spans(OfWords):
    """The labeled spans of a text."""

    summary = 'labeled spans, which may be nested (problem spans)'


@dataclasses.dataclass(frozen=True, kw_only=True)
class AnswerQuestions(Finetuned):
    """The answer to a question in its context."""

    summary = 'the answer to a question in a context (problem question_answering)'
    reads = 'QUESTION<tab>CONTEXT, or {"question": "...", "context": "..."} a line'
    fields = Fields(('question', 'context'), least=2)

    no_answer: bool = flag(
        'leave a question unanswered if no answer is more probable, as published models of SQuAD '
        '2.0 are used (default: as in training)',
        False,
    )

    def prepare(self, model: 'Predictor') -> 'Predictor':
        return model.with_settings(no_answer=True) if self.no_answer else model


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rerank(Finetuned):
    """The order of documents for a query."""

    summary = (
        'documents in the order in which they answer a query (problem reranking, regression of '
        'pairs, and CrossEncoder folders; other models order them by the similarity of vectors)'
    )
    method = 'embed'
    reads = (
        'QUERY<tab>DOCUMENT<tab>DOCUMENT..., or {"query": "...", "documents": ["...", ...]} a line'
    )
    fields = Fields(('query',), list_name='documents')

    def answer(self, model: 'Predictor', rows: Iterable[InputRow]) -> Iterator[JsonRecord]:
        if 'rerank' in model.tasks or model.sentence_modules is None:
            yield from super().answer(model, rows)
            return
        from bert_jax.problems import raw_input

        queries, documents = [], []
        for row in rows:
            name = str(row.values['id'])
            queries.append(raw_input.require_text(row.values, name, 'query'))
            documents.append(raw_input.require_list(row.values, name, 'documents'))
        yield from model.rerank(queries, documents)
