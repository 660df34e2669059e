"""A command run in this process by `commands.here` ends as in a process of its own."""

import pytest

from tests.end_to_end import commands, small
from tests.interop import published

OF_PARSERS = {
    'help': ('bert_jax.export', '--help'),
    'a mistake': ('bert_jax.export', '--model=/none', '--output=/none/out'),
    'an unknown flag': ('bert_jax.predict', '--modle=x'),
    'values': ('bert_jax.main', '--config=configs/tiny.py', '--print_config'),
}


def check(*command: str) -> None:
    ours, theirs = commands.here(*command), commands.run(*command)
    assert ours.returncode == theirs.returncode
    assert ours.stdout == theirs.stdout
    assert ours.stderr == theirs.stderr


@pytest.mark.parametrize('name', OF_PARSERS)
def test_what_parsers_print_is_the_same(name):
    check(*OF_PARSERS[name])


@pytest.mark.slow
def test_what_commands_compute_is_the_same(tmp_path):
    folder = published.folder(tmp_path / 'bert')
    (tmp_path / 'texts').write_text('the ship near the [MASK]\n')
    flags = (f'--model={folder}', '--task=fill_mask', f'--input={tmp_path}/texts', '--output=-')
    check('bert_jax.predict', *flags)
    source = small.write_text(tmp_path)
    text = (f'--input={source}', '--tokenizer=train:wordpiece:60', f'--output={tmp_path}/corpus')
    done = commands.here('bert_jax.prepare', *text)
    assert done.returncode == 0, done.stderr
    check('bert_jax.prepare', f'--output={tmp_path}/corpus', '--verify')
    check('bert_jax.prepare', *text)  # refused: the corpus exists
