"""Refuses data whose columns of texts and labels are exchanged."""

from collections.abc import Iterable, Sequence

from ml_collections import ConfigDict

from bert_jax.errors import UserError
from bert_jax.labels.examples import DistilledExample, Example, TaggedExample, TextExample

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
