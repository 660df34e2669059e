"""Refuses data whose columns of texts and labels are exchanged; warns about names of columns."""

import re
from collections.abc import Iterable, Sequence

from ml_collections import ConfigDict

from bert_jax.errors import UserError, warn
from bert_jax.labels.examples import (
    DistilledExample,
    Example,
    TaggedExample,
    TextExample,
    TextGroup,
)

_QUERIES = ('anchor', 'query', 'querie', 'question', 'title', 'claim', 'premise')
_DOCUMENTS = ('positive', 'document', 'doc', 'passage', 'answer', 'context', 'body', 'response')
_MANY = 20  # fewer labels prove nothing


def check(examples: Iterable[Example], data: ConfigDict) -> None:
    """Raise UserError if labels are as different as texts are, and texts as repetitive as labels.

    Args:
        examples: the train split before other splits were drawn from it.
        data: the config's `data`, for the names of the columns.
    """
    examples = list(examples)
    _check_classes(
        [one for one in examples if isinstance(one, TextExample | DistilledExample)], data
    )
    _check_tags([one for one in examples if isinstance(one, TaggedExample)], data)
    if any(isinstance(one, TextGroup) for one in examples):
        _check_names(data.columns.texts)


def _check_names(columns: Sequence[str]) -> None:
    """Warn about columns of texts whose names say that they have ids, or are exchanged.

    What is trained depends on the order of the columns, not on their names.
    """
    for name in columns:
        if re.search(r'(^|_)(id|ids|idx)$', name.lower()):
            warn(f'data.columns.texts has {name!r}: an id would be embedded as a text')
    if len(columns) < 2:
        return
    first, second = (name.lower().removesuffix('s') for name in columns[:2])
    if first in _DOCUMENTS and second in _QUERIES:
        warn(
            f'data.columns.texts starts with {columns[0]!r}, {columns[1]!r}: the first column is '
            'the query, the second its document'
        )


def _check_classes(examples: Sequence[TextExample | DistilledExample], data: ConfigDict) -> None:
    classes = {one.label for one in examples if isinstance(one.label, str)}
    texts = {one.texts for one in examples}
    if len(classes) < max(_MANY, len(examples) / 2) or len(classes) <= len(texts):
        return
    text, label = data.columns.text, data.columns.label
    raise UserError(
        f'nearly every row has its own class: {len(classes):,} classes, but {len(texts):,} '
        f'different texts in {len(examples):,} rows; data.columns.text={text!r} and '
        f'data.columns.label={label!r} may be exchanged: set data.columns.text={label!r} and '
        f'data.columns.label={text!r}'
    )


def _check_tags(examples: Sequence[TaggedExample], data: ConfigDict) -> None:
    tags = {tag for one in examples for tag in one.tags or ()}
    words = {one.text[start:end] for one in examples for start, end in one.words}
    if len(tags) < _MANY or len(tags) <= len(words):
        return
    columns = ', '.join(
        f'data.columns.{key}={data.columns[key]!r}' for key in ('tokens', 'tags', 'word', 'tag')
    )
    raise UserError(
        f'there are {len(tags):,} different tags, but {len(words):,} different words: the columns '
        f'of words and tags may be exchanged ({columns}; tokens and tags name the columns of '
        'tables and JSON, word and tag those of CoNLL)'
    )
