"""The one entry: bert-jax COMMAND."""

import dataclasses
import sys

import pytest

from bert_jax import __main__ as entry
from bert_jax import lazy_table
from bert_jax.flag_parser import flags_of


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, 'argv', ['bert-jax', *arguments])
    entry.main()


def test_help_fits_on_one_screen_and_names_every_command(monkeypatch, capsys):
    run(monkeypatch, '--help')
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 30
    assert max(map(len, lines)) <= 100
    for name in entry.COMMANDS:
        assert any(line.split()[:1] == [name] for line in lines)


@pytest.mark.parametrize(
    ('name', 'advice'),
    [('predct', 'did you mean predict?'), ('finetune', 'known: analyze, '), ('--model=x', 'known')],
)
def test_an_unknown_command_is_one_line(name, advice, monkeypatch, capsys):
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, name)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: unknown command '{name}'")
    assert advice in line


def test_a_command_gets_its_flags(monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(monkeypatch, 'export', '--modle=x')
    assert 'unknown flag --modle; did you mean --model?' in capsys.readouterr().err


def test_model_input_and_output_have_one_name_in_every_command():
    for command in entry.COMMANDS.values():
        flags = flags_of(lazy_table.load(command.request))
        assert 'output' in flags
        for other in ('gold', 'source', 'texts', 'workdir', 'init_from', 'folder', 'path'):
            assert other not in flags


def test_every_command_declares_its_flags_in_a_dataclass():
    for command in entry.COMMANDS.values():
        assert dataclasses.is_dataclass(lazy_table.load(command.request))
