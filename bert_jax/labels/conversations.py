"""Builds conversations from rows: lists of messages, or a prompt and its answer.

Messages are those of OpenAI and transformers ("role", "content") or of ShareGPT ("from", "value").
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from bert_jax.labels.builder import ExampleBuilder
from bert_jax.labels.examples import ConversationExample
from bert_jax.labels.records import InvalidRecord, Row, check_text
from bert_jax.types import JsonRecord, JsonView, RecordView

COLUMNS = ('messages', 'conversations')  # ShareGPT has the second
ROLES = ('system', 'user', 'assistant', 'tool')
# Role in a file → role here.
_ROLE_OF = {
    **{role: role for role in ROLES},
    'developer': 'system',
    'human': 'user',
    **dict.fromkeys(('gpt', 'model', 'function_call'), 'assistant'),
    **dict.fromkeys(('function', 'function_response', 'observation'), 'tool'),
}
# Role → the roles that may come before it; '' is the start, or the message of the system there.
_BEFORE = {
    'user': ('', *ROLES[1:]),
    'assistant': ROLES[1:],
    'tool': ('assistant', 'tool'),
}
# Whether an answer is learned: OpenAI and Mistral; axolotl and ms-swift.
_LEARNED_KEYS = ('weight', 'train', 'training', 'loss')
_READ_KEYS = {'role', 'from', 'content', 'value', 'tool_calls', 'function_call', *_LEARNED_KEYS}
_TOOL_KEYS = {'name', 'tool_call_id'}  # say whose result it is; results are in the order of calls
_TEXT_PARTS = ('text', 'input_text', 'output_text')


class Message(NamedTuple):
    """A message.

    Attributes:
        role: one of ROLES.
        text: its text, with the calls of tools.
        is_learned: whether the answer is learned, if it is the assistant's.
    """

    role: str
    text: str
    is_learned: bool = True


def build_conversation(
    row: Row, example_id: str, builder: ExampleBuilder
) -> list[ConversationExample]:
    """Read `data.columns.messages`; in rows without it, `prompt` and `answer`; and `system`."""
    columns = builder.columns
    if columns.messages in COLUMNS:
        column = next((name for name in COLUMNS if name in row.values), '')
    else:
        column = columns.messages if columns.messages and columns.messages in row else ''
    if column:
        messages = read_messages(row[column], f'column {column!r}', builder.counts)
    else:
        messages = _read_pair(row, builder)
    system = columns.system or 'system'
    if columns.system or (system in row.values and row[system] not in (None, '')):
        messages = with_system(messages, row.text(system))
    if builder.labeled:
        messages = _until_last_answer(messages, builder.counts)
    return [make_conversation(messages, example_id)]


def _read_pair(row: Row, builder: ExampleBuilder) -> list[Message]:
    """The messages of a prompt, which are not learned, and of its answer; both may be lists."""
    columns = builder.columns

    def read(column: str, role: str) -> list[Message]:
        value = row[column]
        if isinstance(value, list):
            return read_messages(value, f'column {column!r}', builder.counts)
        return [Message(role, row.text(column))]

    messages = [message._replace(is_learned=False) for message in read(columns.prompt, 'user')]
    if builder.has_label(row, columns.answer, 'answer') and (
        builder.labeled or row[columns.answer] not in (None, '')
    ):
        messages += read(columns.answer, 'assistant')
    return messages


def _until_last_answer(messages: Sequence[Message], counts: Counter[str]) -> list[Message]:
    """Leave out what follows the last answer that is learned, which nothing depends on.

    Raises:
        InvalidRecord: no answer is learned.
    """
    answers = [number for number, one in enumerate(messages) if one.role == 'assistant']
    learned = [number for number in answers if messages[number].is_learned]
    if not learned:
        raise InvalidRecord(
            'all answers have weight 0, so there is nothing to learn'
            if answers
            else "the last message is the user's, so there is no answer to learn"
        )
    end = learned[-1] + 1
    counts['messages_after_the_last_answer_that_is_learned'] += len(messages) - end
    return list(messages[:end])


def with_system(messages: Sequence[Message], text: str) -> list[Message]:
    """Put the text of the system before messages.

    Raises:
        InvalidRecord: they begin with another text of the system.
    """
    has_system = bool(messages) and messages[0].role == 'system' and messages[0].text.strip() != ''
    if has_system and messages[0].text != text:
        raise InvalidRecord(
            f'the messages begin with a system ({messages[0].text!r:.40}), but the column of the '
            f'system has another text ({text!r:.40})'
        )
    return list(messages) if has_system else [Message('system', text), *messages]


def make_conversation(
    turns: Sequence[tuple[str, str] | Message], example_id: str | int
) -> ConversationExample:
    """Check the order of turns, (role, text) pairs or messages, and make an example of them.

    An empty text of the system is left out.

    Raises:
        InvalidRecord: an empty text of another role, or turns in another order: a system, if any, a
            user, then users, assistants, and tools after an assistant.
    """
    messages = [Message(*turn) for turn in turns]
    messages = [one for one in messages if one.role != 'system' or one.text.strip()]
    roles = [one.role for one in messages]
    spoken = roles[1:] if roles[:1] == ['system'] else roles
    pairs = zip(['', *spoken], spoken, strict=False)
    if not spoken or any(before not in _BEFORE.get(role, ()) for before, role in pairs):
        raise InvalidRecord(
            f'the roles of the messages are {", ".join(roles) or "none"}; they must be a user, '
            'then user or assistant in any order, tools after an assistant, and before them one '
            'system or none'
        )
    for role, text, _ in messages:
        if not text.strip():
            raise InvalidRecord(f'the {role} has an empty message')
    texts = tuple(one.text for one in messages)
    answer = texts[-1] if roles[-1] == 'assistant' else None
    is_learned = tuple(one.role == 'assistant' and one.is_learned for one in messages)
    return ConversationExample(example_id, tuple(roles), texts, answer, is_learned)


def read_messages(value: object, where: str, counts: Counter[str] | None = None) -> list[Message]:
    """Return messages from a list of objects, or from such a list as JSON text.

    Args:
        value: the list.
        where: its name, for messages.
        counts: keys of messages that are not read are counted there.

    Raises:
        InvalidRecord: the value is something else, a message has no known role or no text, or a key
            that would change what is learned and cannot be read.
    """
    if isinstance(value, str):
        try:
            return read_messages(json.loads(value), where, counts)
        except ValueError:
            raise InvalidRecord(f'{where} is {value[:40]!r}, not a list of messages') from None
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InvalidRecord(f'{where} is {json.dumps(value)[:40]}, not a list of messages')
    messages = [_read_message(one) for one in cast(list[JsonRecord], value)]
    if counts is not None:
        for message, read in zip(value, messages, strict=True):
            for key in _unread_keys(message, read.role):
                counts[f'messages_with_"{key}",_which_is_not_read'] += 1
    return messages


def _read_message(message: JsonView) -> Message:
    name = message.get('role', message.get('from'))
    if name not in _ROLE_OF:
        raise InvalidRecord(f'a message has the role {name!r}, not {", ".join(ROLES)}')
    role = _ROLE_OF[name]
    if message.get('name') and role != 'tool':
        raise InvalidRecord(
            f'a message of the {role} has the name {message["name"]!r}, which has no place; put it '
            'into the text, or remove it'
        )
    calls = message.get('tool_calls') or []
    if message.get('function_call'):
        calls = [{'function': message['function_call']}]
    if calls and role != 'assistant':
        raise InvalidRecord(f'a message of the {role} has calls of tools')
    text = _text_of(message.get('content', message.get('value')), role, is_optional=bool(calls))
    text = '\n'.join([*([text] if text else []), *map(_text_of_call, calls)])
    return Message(role, text, _is_learned(message, role))


def _text_of(content: object, role: str, is_optional: bool) -> str:
    """The text of a message; its content may be a list of texts."""
    if content is None and is_optional:
        return ''
    if isinstance(content, list):
        return ''.join(_text_of_part(part, role) for part in content)
    if not isinstance(content, str):
        raise InvalidRecord(f'a message of the {role} has no text in "content"')
    check_text(content)
    return content


def _text_of_part(part: Any, role: str) -> str:
    if isinstance(part, str):
        part = {'type': 'text', 'text': part}
    kind = part.get('type', 'text') if isinstance(part, dict) else type(part).__name__
    if kind not in _TEXT_PARTS or not isinstance(part.get('text'), str):
        raise InvalidRecord(f'a message of the {role} has a part of the type {kind}, not a text')
    check_text(part['text'])
    return str(part['text'])


def _text_of_call(call: Any) -> str:
    """A call of a tool as JSON: {"name": …, "arguments": …}."""
    function = call.get('function', call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get('name'), str):
        raise InvalidRecord(f'a call of a tool has no name: {json.dumps(call)[:60]}')
    arguments = function.get('arguments')
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            raise InvalidRecord(
                f'the arguments of a call of {function["name"]} are not JSON: {arguments[:40]!r}'
            ) from None
    text = json.dumps({'name': function['name'], 'arguments': arguments}, ensure_ascii=False)
    check_text(text)
    return text


def _is_learned(message: RecordView, role: str) -> bool:
    """Whether the keys of a message say that it is learned; True without such a key."""
    is_learned = True
    if message.keys().isdisjoint(_LEARNED_KEYS):
        return is_learned
    for key in _LEARNED_KEYS:
        value = message.get(key)
        if value is None:
            continue
        if not isinstance(value, bool | int | float) or value not in (0, 1):
            raise InvalidRecord(f'a message has "{key}": {json.dumps(value)[:40]}, not 0 or 1')
        if value and role != 'assistant':
            raise InvalidRecord(
                f'a message of the {role} has "{key}": {json.dumps(value)}, but only answers of '
                'the assistant are learned'
            )
        is_learned &= bool(value)
    return is_learned


def _unread_keys(message: RecordView, role: str) -> list[str]:
    """The keys of a message that have a value and no meaning here."""
    if message.keys() <= _READ_KEYS:
        return []
    read = _READ_KEYS | _TOOL_KEYS if role == 'tool' else _READ_KEYS
    return [key for key in message if key not in read and message[key] not in (None, '', [], {})]
