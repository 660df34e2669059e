"""Templates of source texts: patterns with {text} and {text2}, or names of published ones.

Raffel et al. 2020 (T5), appendix D, write every task as text: a name of the task, and a name
before each text. Targets are the names of the classes, or numbers rounded to 0.2.
"""

import re
from collections.abc import Mapping

from bert_jax.errors import UserError
from bert_jax.labels.builder import parse_float
from bert_jax.labels.records import InvalidRecord
from bert_jax.problems.prompting.templates import Field

# Named as in T5; the columns of the task are text and text2.
TEMPLATES = {
    'cola': 'cola sentence: {text}',
    'sst2': 'sst2 sentence: {text}',
    'mrpc': 'mrpc sentence1: {text} sentence2: {text2}',
    'stsb': 'stsb sentence1: {text} sentence2: {text2}',
    'qqp': 'qqp question1: {text} question2: {text2}',
    'mnli': 'mnli hypothesis: {text2} premise: {text}',
    'qnli': 'qnli question: {text} sentence: {text2}',
    'rte': 'rte sentence1: {text} sentence2: {text2}',
    'wnli': 'wnli sentence1: {text} sentence2: {text2}',
    'summarize': 'summarize: {text}',
}
_FIELDS = ('text', 'text2')


def pattern_of(template: str) -> str:
    """Return the pattern that a template names or is.

    Raises:
        UserError: a pattern without {text}, or with another field.
    """
    pattern = TEMPLATES.get(template, template)
    fields = re.findall(r'\{(\w*)\}', pattern)
    if 'text' not in fields or (unknown := set(fields) - set(_FIELDS)):
        wrong = f'has {{{sorted(unknown)[0]}}}' if 'text' in fields else 'lacks {text}'
        raise UserError(
            f'problem.template is {template!r}, which {wrong}; use a pattern with {{text}} and '
            f'{{text2}}, or one of {", ".join(TEMPLATES)}'
        )
    return pattern


def fill(pattern: str, values: Mapping[str, str]) -> str:
    """Put the text of each field into a pattern."""
    return re.sub(r'\{(text2?)\}', lambda match: values[match[1]], pattern)


def parse(pattern: str) -> list[str | Field]:
    """Return the literal text and the fields of a pattern."""
    parts = re.split(r'\{(text2?)\}', pattern)
    return [Field(one, ()) if n % 2 else one for n, one in enumerate(parts) if one]


def values_of(pattern: str, texts: tuple[str, ...], example: object) -> dict[str, str]:
    """Return the text of each field. Raises UserError if the pattern has another number of them."""
    wanted = 1 + ('{text2}' in pattern)
    if len(texts) != wanted:
        raise UserError(
            f'example {example}: {len(texts)} texts, but problem.template {pattern!r} has '
            f'{wanted}; set data.columns.text2 or problem.template'
        )
    return dict(zip(_FIELDS, texts, strict=False))


def round_number(target: str, step: float, example: object) -> str:
    """Return a number rounded to a multiple of `step`, as 3.8 or, for steps of 1, as 4."""
    try:
        number = parse_float(target)
    except InvalidRecord as error:
        raise UserError(
            f'example {example}: the target {error}; set problem.round_numbers to 0'
        ) from None
    decimals = len(f'{step:g}'.partition('.')[2])
    return f'{round(number / step) * step:.{decimals}f}'
