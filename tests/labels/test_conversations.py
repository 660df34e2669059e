"""Messages as OpenAI, transformers, TRL and ShareGPT write them; what is learned of them."""

import json

import pytest

from bert_jax.errors import UserError
from tests.labels.reading import read, write_json_lines

USER, ANSWER = {'role': 'user', 'content': 'Hi'}, {'role': 'assistant', 'content': 'Hello.'}
NO = {'role': 'user', 'content': 'No.'}


def conversation(tmp_path, record, **columns):
    """The only conversation of a file: (role, text, whether it is learned) of each turn."""
    train = write_json_lines(tmp_path / 'train.jsonl', record)
    splits = read('instructions', columns, train=train, dev_fraction=0.0)
    (example,) = splits.train
    turns = zip(example.roles, example.contents, example.is_learned, strict=True)
    return list(turns), +splits.report


READ = {
    'sharegpt': (
        {'conversations': [{'from': 'human', 'value': 'Hi'}, {'from': 'gpt', 'value': 'Hello.'}]},
        [('user', 'Hi', False), ('assistant', 'Hello.', True)],
    ),
    'parts': (
        {
            'messages': [
                {'role': 'user', 'content': [{'type': 'text', 'text': 'H'}, 'i']},
                {'role': 'assistant', 'content': [{'type': 'text', 'text': 'Hello.'}]},
            ]
        },
        [('user', 'Hi', False), ('assistant', 'Hello.', True)],
    ),
    'calls of tools': (
        {
            'messages': [
                USER,
                {
                    'role': 'assistant',
                    'content': None,
                    'tool_calls': [{'function': {'name': 'sum', 'arguments': '{"a": 1}'}}],
                },
                {'role': 'tool', 'content': '42', 'tool_call_id': '7', 'name': 'sum'},
                ANSWER,
            ]
        },
        [
            ('user', 'Hi', False),
            ('assistant', '{"name": "sum", "arguments": {"a": 1}}', True),
            ('tool', '42', False),
            ('assistant', 'Hello.', True),
        ],
    ),
    'developer': (
        {'messages': [{'role': 'developer', 'content': 'Be short.'}, USER, ANSWER]},
        [('system', 'Be short.', False), ('user', 'Hi', False), ('assistant', 'Hello.', True)],
    ),
    'empty system': (
        {'messages': [{'role': 'system', 'content': ''}, USER, ANSWER]},
        [('user', 'Hi', False), ('assistant', 'Hello.', True)],
    ),
    'two users': (
        {'messages': [USER, NO, ANSWER]},
        [('user', 'Hi', False), ('user', 'No.', False), ('assistant', 'Hello.', True)],
    ),
    'column of the system': (
        {'system': 'Be short.', 'messages': [USER, ANSWER]},
        [('system', 'Be short.', False), ('user', 'Hi', False), ('assistant', 'Hello.', True)],
    ),
    'system beside a prompt': (
        {'system': 'Be short.', 'prompt': 'Hi', 'answer': '  Hello.'},
        [('system', 'Be short.', False), ('user', 'Hi', False), ('assistant', '  Hello.', True)],
    ),
    'prompt and completion': (
        {'prompt': [USER, ANSWER, NO], 'answer': [ANSWER]},
        [
            ('user', 'Hi', False),
            ('assistant', 'Hello.', False),
            ('user', 'No.', False),
            ('assistant', 'Hello.', True),
        ],
    ),
    'weights': (
        {'messages': [USER, ANSWER | {'weight': 0}, NO, ANSWER | {'weight': 1, 'name': None}]},
        [
            ('user', 'Hi', False),
            ('assistant', 'Hello.', False),
            ('user', 'No.', False),
            ('assistant', 'Hello.', True),
        ],
    ),
    'train': (
        {'messages': [USER | {'train': False}, ANSWER, NO, ANSWER | {'train': False}]},
        [('user', 'Hi', False), ('assistant', 'Hello.', True)],
    ),
    'loss': (
        {'messages': [USER, ANSWER | {'loss': False}, NO, ANSWER | {'loss': True}]},
        [
            ('user', 'Hi', False),
            ('assistant', 'Hello.', False),
            ('user', 'No.', False),
            ('assistant', 'Hello.', True),
        ],
    ),
}


@pytest.mark.parametrize('name', READ)
def test_messages_of_other_programs_are_read(tmp_path, name):
    record, expected = READ[name]
    assert conversation(tmp_path, record)[0] == expected


def test_messages_are_read_from_json_in_a_column_and_renamed_columns(tmp_path):
    messages = [{'from': 'human', 'value': 'Hi'}, {'from': 'gpt', 'value': 'Hello.'}]
    expected = [('user', 'Hi', False), ('assistant', 'Hello.', True)]
    found, _ = conversation(tmp_path, {'chat': json.dumps(messages)}, messages='chat')
    assert found == expected
    record = {'prompt': [USER], 'completion': [ANSWER]}
    assert conversation(tmp_path, record, answer='completion')[0] == expected


def test_what_is_left_out_is_counted(tmp_path):
    record = {'messages': [USER | {'id': 7}, ANSWER | {'reasoning': 'because', 'audio': None}, NO]}
    turns, report = conversation(tmp_path, record)
    assert len(turns) == 2
    assert report == {
        'messages_with_"id",_which_is_not_read': 1,
        'messages_with_"reasoning",_which_is_not_read': 1,
        'messages_after_the_last_answer_that_is_learned': 1,
    }


REFUSED = {
    'all answers have weight 0': [USER, ANSWER | {'weight': 0}],
    '"weight": 0.5, not 0 or 1': [USER, ANSWER | {'weight': 0.5}],
    '"train": "no", not 0 or 1': [USER, ANSWER | {'train': 'no'}],
    'the user has "train": true, but only answers': [USER | {'train': True}, ANSWER],
    "the user has the name 'Ann'": [USER | {'name': 'Ann'}, ANSWER],
    'has calls of tools': [USER | {'tool_calls': [{'function': {'name': 'f'}}]}, ANSWER],
    'a call of a tool has no name': [USER, ANSWER | {'tool_calls': [{'id': '1'}]}],
    'a part of the type image_url': [USER | {'content': [{'type': 'image_url'}]}, ANSWER],
    'no text in "content"': [USER, ANSWER | {'content': None}],
}


@pytest.mark.parametrize('message', REFUSED)
def test_what_would_change_what_is_learned_and_cannot_be_read_is_refused(tmp_path, message):
    with pytest.raises(UserError, match=message):
        conversation(tmp_path, {'messages': REFUSED[message]})


def test_two_texts_of_the_system_are_refused(tmp_path):
    messages = [{'role': 'system', 'content': 'Be long.'}, USER, ANSWER]
    with pytest.raises(UserError, match='begin with a system .* another text'):
        conversation(tmp_path, {'system': 'Be short.', 'messages': messages})
    turns, _ = conversation(tmp_path, {'system': 'Be long.', 'messages': messages})
    assert len(turns) == 3
