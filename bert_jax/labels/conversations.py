"""Builds conversations from rows: lists of messages, or a prompt and its answer."""

import json
from collections.abc import Sequence
from typing import cast

from bert_jax.labels.builder import ExampleBuilder
from bert_jax.labels.examples import ConversationExample
from bert_jax.labels.records import InvalidRecord, Row, check_text
from bert_jax.types import JsonObject

ROLES = ('system', 'user', 'assistant')


def build_conversation(
    row: Row, example_id: str, builder: ExampleBuilder
) -> list[ConversationExample]:
    """Read `data.columns.messages`; in rows without it, `system`, `prompt` and `answer`."""
    columns = builder.columns
    if columns.messages and columns.messages in row:
        turns = read_messages(row[columns.messages], f'column {columns.messages!r}')
    else:
        turns = [('user', row.text(columns.prompt))]
        if columns.system:
            turns.insert(0, ('system', row.text(columns.system)))
        if builder.has_label(row, columns.answer, 'answer') and (
            builder.labeled or row[columns.answer] not in (None, '')
        ):
            turns.append(('assistant', row.text(columns.answer)))
    example = make_conversation(turns, example_id)
    if example.answer is None and builder.labeled:
        raise InvalidRecord("the last message is the user's, so there is no answer to learn")
    return [example]


def make_conversation(
    turns: Sequence[tuple[str, str]], example_id: str | int
) -> ConversationExample:
    """Check the order of turns, (role, text) pairs, and make an example of them.

    Raises:
        InvalidRecord: no turn of a user, an empty text, or turns in another order than a system,
            if any, then user and assistant in turn.
    """
    roles = [role for role, _ in turns]
    spoken = roles[1:] if roles[:1] == ['system'] else roles
    expected = [ROLES[1 + number % 2] for number in range(len(spoken))]
    if not spoken or spoken != expected:
        raise InvalidRecord(
            f'the roles of the messages are {", ".join(roles) or "none"}; they must be user, '
            'assistant, user, …, with one system before them or none'
        )
    for role, text in turns:
        if not text.strip():
            raise InvalidRecord(f'the {role} has an empty message')
    texts = tuple(text for _, text in turns)
    answer = texts[-1] if roles[-1] == 'assistant' else None
    return ConversationExample(example_id, tuple(roles), texts, answer)


def read_messages(value: object, where: str) -> list[tuple[str, str]]:
    """Return the (role, text) pairs of messages, a list of objects or such a list as JSON text.

    Raises:
        InvalidRecord: the value is something else, or a message has no known role or no text.
    """
    if isinstance(value, str):
        try:
            return read_messages(json.loads(value), where)
        except ValueError:
            raise InvalidRecord(f'{where} is {value[:40]!r}, not a list of messages') from None
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InvalidRecord(f'{where} is {json.dumps(value)[:40]}, not a list of messages')
    turns, messages = [], cast(list[JsonObject], value)
    for message in messages:
        role, text = message.get('role'), message.get('content')
        if role not in ROLES:
            raise InvalidRecord(f'a message has the role {role!r}, not {", ".join(ROLES)}')
        if not isinstance(text, str):
            raise InvalidRecord(f'a message of the {role} has no text in "content"')
        check_text(text)
        turns.append((role, text))
    return turns
