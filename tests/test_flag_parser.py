"""Mistyped command lines of all commands: one line that names the mistake and what was meant."""

import argparse

import pytest

from bert_jax import completion, lazy_table
from bert_jax.errors import UserError
from bert_jax.flag_parser import FlagParser

MAINS = {
    **{name: main for name, (main, _) in completion.COMMANDS.items()},
    'ensemble': 'bert_jax.reports.ensemble:main',
}
MODEL = '--model=runs/x'
# Command line → what the error names.
REFUSED = {
    'main --confg=configs/tiny.py': ['--confg;', '--config?'],
    'main --confg configs/tiny.py': ['--confg;', '--config?'],
    'main --config.seed=1 --dryrun': ['--dryrun;', '--dry_run?'],
    'main --training.steps=5': ['--training.steps;', '--config.training.steps?'],
    'main config=configs/tiny.py': ['did you mean --config=configs/tiny.py?'],
    'main configs/tiny.py': ['did you mean --config=configs/tiny.py?'],
    'main --config=configs/tiny.py seed=3': ['did you mean --config.seed=3?'],
    'main --config=configs/tiny.py --config.data.sources a.txt b.txt --dry_run': [
        "'b.txt'",
        "--config.data.sources='*.txt'",
    ],
    'main --config=configs/tiny.py --config.data.tokenizer=a.txt b.txt': ['takes one name'],
    'predict --task=clasify': ["--task 'clasify'", 'did you mean classify?', 'known: answer, '],
    f'predict --task=embed {MODEL} --input=a.txt --outptu=x.npz': ['--outptu;', '--output?'],
    f'predict {MODEL} --task=embed': ['--input, --output are missing'],
    'predict --task=embed --input=a --output=b': ['--tuned or --model'],
    f'predict --task=embed {MODEL} --input a.txt b.txt --output=-': ["'b.txt'", 'takes one name'],
    'predict --top=two': ['--top: two is not a whole number'],
    'evaluate --gold a.txt b.txt --output=x --model=y': ["'b.txt'", "--gold='*.txt'"],
    'evaluate --gold=a --model=y --dta.format=csv': ['--dta.format;', '--data.format?'],
    'evaluate --gold=a --config.problem.no_answer=1': ['did you mean --problem.no_answer?'],
    'evaluate --gold=a --model=y --output=z --data.format': ['--data.format has no value'],
    f'export {MODEL}': ['--output is missing'],
    f'export {MODEL} --output=x --fromat=onnx': ['--fromat;', '--format?'],
    f'export {MODEL} --output=x --format=onxx': ["--format 'onxx'", 'did you mean onnx?'],
    f'export {MODEL} --output=x --lengths=a': ['--lengths=a'],
    'export --merge=yes': ['--merge takes no value'],
    'analyze': ['isotropy'],
    f'analyze {MODEL} isotropy': ['the first argument', 'isotropy'],
    'analyze isotropi': ["'isotropi'", 'did you mean isotropy?'],
    f'analyze isotropy {MODEL}': ['--input, --output are missing'],
    f'analyze isotropy {MODEL} --input a.txt b.txt --output=x': ["--input='*.txt'"],
    f'analyze all {MODEL} --input=plan --output=x': ['plan, line 2', '--dytpe;', '--dtype?'],
    'page --modle=x': ['--modle;', '--model?'],
    'page --model': ['--model has no value'],
    'prepare --source=a --outptu=x': ['--outptu;', '--output?'],
    'prepare --source a.txt b.txt --output=x': ["'b.txt'", "--source='*.txt'"],
    'prepare b.txt --source=a.txt --output=x': ["'b.txt' is not a flag"],
    'prepare --source=a --output=x --lowercase=flase': ['did you mean false?'],
    'prepare --source=a --output=x --held_out_fraction=half': ["'half' is not a number"],
    'ensemble --ouput=x a.txt': ['--ouput;', '--output?'],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ('a.txt', 'b.txt'):
        (tmp_path / name).write_text('text\n')
    (tmp_path / 'plan').write_text('isotropy --input=a.txt\nheads --input=a.txt --dytpe=float32\n')


@pytest.mark.parametrize('command_line', REFUSED)
def test_a_mistake_is_one_line_that_names_what_was_meant(command_line, folder, capsys):
    command, *arguments = command_line.split()
    main = lazy_table.load(MAINS[command])
    with pytest.raises(SystemExit) as ended:
        main(['main', *arguments] if command == 'main' else arguments)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('error: ')
    for word in REFUSED[command_line]:
        assert word in line


def test_argparse_is_used_through_this_parser_only():
    """All commands of the package give errors of one line."""
    files = (completion.recipes.FOLDER.parent / 'bert_jax').rglob('*.py')
    users = [path.name for path in files if 'ArgumentParser(' in path.read_text('utf-8')]
    assert users == []


def test_values_that_look_like_flags_or_words_are_read():
    parser = FlagParser('program', sections=('data',))
    parser.add_argument('--layer', type=int)
    parser.add_argument('--text')
    parser.add_argument('--labels', nargs='+')
    parser.add_argument('rest', nargs='*')
    line = '--lay -1 --text=--x --labels a b --data.x 3 --data.y=-4 -- --scheduler=z'
    flags = parser.parse(line.split())
    expected = {'layer': -1, 'text': '--x', 'labels': ['a', 'b'], 'data': ['x=3', 'y=-4']}
    assert vars(flags) == expected | {'rest': ['--scheduler=z']}


def test_an_ambiguous_beginning_of_a_flag_is_refused():
    parser = FlagParser('program')
    parser.add_argument('--input')
    parser.add_argument('--input_format')
    parser.add_argument('--inner', choices=[1, 2], type=int)
    with pytest.raises(UserError, match='--in.*--input.*--inner'):
        parser.parse(['--in=x'])
    with pytest.raises(UserError, match='unknown --inner 3; known: 1, 2'):
        parser.parse(['--inner=3'])
    assert parser.parse(['--input=x']) == argparse.Namespace(
        input='x', input_format=None, inner=None
    )
