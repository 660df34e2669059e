"""Joins rows of one word each into rows of sentences, as tables of tagged words often have them."""

from collections.abc import Iterator

from ml_collections import ConfigDict

from bert_jax.labels.records import InvalidRecord, Record, Row, SkippedRecord


def sentences(records: Iterator[Record], data: ConfigDict) -> Iterator[Record]:
    """Yield a record for each run of rows with one value of `data.columns.sentence`.

    A blank value is that of the row above. The words and tags of the rows are lists in the columns
    `tokens` and `tags`; other columns have the value of the first row. An unusable row makes its
    sentence unusable.
    """
    columns = data.columns
    sentence: list[Record] = []
    current = ''
    for record in records:
        if isinstance(record.content, SkippedRecord):
            yield record
            continue
        try:
            name = _sentence_name(record, columns.sentence) or current
        except InvalidRecord as error:
            record = record._replace(content=error)
            name = current
        if sentence and name != current:
            yield _join(sentence, data)
            sentence = []
        sentence.append(record)
        current = name
    if sentence:
        yield _join(sentence, data)


def _sentence_name(record: Record, column: str) -> str:
    """The value that names the sentence of a row; '' for an unusable or blank one."""
    if isinstance(record.content, InvalidRecord) or record.content[column] is None:
        return ''
    return str(record.content.text(column)).strip()


def _join(sentence: list[Record], data: ConfigDict) -> Record:
    first = sentence[0]
    invalid = [one.content for one in sentence if isinstance(one.content, InvalidRecord)]
    if invalid:
        return first._replace(content=invalid[0])
    names = [name for name in (data.columns.tokens, data.columns.tags) if name in first.content]
    lists = {name: [one.content[name] for one in sentence] for name in names}
    return first._replace(content=Row(first.content.values | lists))
