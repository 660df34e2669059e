"""Mistyped command lines of all commands: one line that names the mistake and what was meant."""

import dataclasses
import pathlib

import pytest

from bert_jax import lazy_table
from bert_jax.__main__ import COMMANDS
from bert_jax.errors import UserError
from bert_jax.flag_parser import flag, parse, words_of

ROOT = pathlib.Path(__file__).parents[1]
MAINS = {
    **{name: f'{command.module}:main' for name, command in COMMANDS.items()},
    'main': 'bert_jax.main:main',
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
    'predict': ['--task is missing; --help lists the tasks'],
    'predict --task': ["unknown --task ''"],
    'predict --task=clasify': ["--task 'clasify'", 'did you mean classify?', 'known: answer, '],
    f'predict --task=embed {MODEL} --input=a.txt --outptu=x.npz': ['--outptu;', '--output?'],
    f'predict {MODEL} --task=embed': ['--input, --output are missing'],
    'predict --task=classify --input=a --output=b': ['--tuned or --model'],
    'predict --task=embed --input=a --output=b.npz': ['--model is missing'],
    f'predict {MODEL} --input=a --output=b': ['--task is missing'],
    f'predict {MODEL} --task=tag --top=3': ['--task=tag, only with fill_mask, search, terms;'],
    f'predict --task=embed {MODEL} --input a.txt b.txt --output=-': ["'b.txt'", 'takes one name'],
    'predict --task=terms --top=two': ['--top=two: the value must be a whole number'],
    'evaluate --input a.txt b.txt --output=x --model=y': ["'b.txt'", "--input='*.txt'"],
    'evaluate --input=a --model=y --dta.format=csv': ['--dta.format;', '--data.format?'],
    'evaluate --input=a --config.problem.no_answer=1': ['did you mean --problem.no_answer?'],
    'evaluate --input=a --model=y --output=z --data.format': ['--data.format has no value'],
    f'export {MODEL}': ['--output is missing'],
    f'export {MODEL} --output=x --fromat=onnx': ['--fromat;', '--format?'],
    f'export {MODEL} --output=x --format=onxx': ["--format 'onxx'", 'did you mean onnx?'],
    f'export {MODEL} --output=x --lengths=a': ['--lengths=a'],
    'export --merge=yes': ['--merge=yes: the value must be True or False'],
    'analyze': ['isotropy'],
    f'analyze {MODEL} isotropy': ['the first argument', 'isotropy'],
    'analyze isotropi': ["'isotropi'", 'did you mean isotropy?'],
    f'analyze isotropy {MODEL}': ['--input, --output are missing'],
    f'analyze isotropy {MODEL} --input a.txt b.txt --output=x': ["--input='*.txt'"],
    f'analyze all {MODEL} --input=plan --output=x': ['plan, line 2', '--dytpe;', '--dtype?'],
    'page --modle=x': ['--modle;', '--model?'],
    'page --model': ['--model has no value'],
    'prepare --input=a --outptu=x': ['--outptu;', '--output?'],
    'prepare --input a.txt b.txt --output=x': ["'b.txt'", "--input='*.txt'"],
    'prepare b.txt --input=a.txt --output=x': ["'b.txt' is not a flag"],
    'prepare --input=a --output=x --lowercase=flase': ['must be True or False'],
    'prepare --input=a --output=x --held_out_fraction=half': ['must be a number'],
    'prepare --output=x --tokenizer=v.txt --tokenizer_characters=9': [
        'characters has no',
        "'v.txt'",
    ],
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


def test_no_command_parses_by_itself():
    """All commands of the package give errors of one line."""
    files = (ROOT / 'bert_jax').rglob('*.py')
    assert [path.name for path in files if 'ArgumentParser(' in path.read_text('utf-8')] == []


@dataclasses.dataclass(frozen=True, kw_only=True)
class Example:
    layer: int | None = flag('layer', None, '(-inf, inf)')
    text: str = flag('text', '')
    size: float = flag('size', 0.5, '(0, 1]', needs='text')
    quiet: bool = flag('print nothing', False)
    lower: bool = flag('lowercase', True)
    kind: str = flag('kind', 'a', choices=('a', 'b'))
    depth: int = flag('depth', 3, only=('kind', ('b',)))
    input: tuple[str, ...] = flag('files', (), form='repeated')
    labels: tuple[str, ...] = flag('labels', (), form='several')
    numbers: tuple[int, ...] = flag('numbers', ())
    data: tuple[tuple[str, str | None], ...] = flag('keys', (), form='section')
    files: tuple[str, ...] = flag('more files', (), form='words')
    rest: tuple[str, ...] = flag('of another program', (), form='rest')


def read(line):
    return parse(Example, line.split(), 'program')


def test_values_that_look_like_flags_or_words_are_read():
    assert read('--layer -1 --text=--x --labels a b --data.x 3 --data.y=-4 -- --scheduler=z') == (
        Example(
            layer=-1,
            text='--x',
            labels=('a', 'b'),
            data=(('x', '3'), ('y', '-4')),
            rest=('--scheduler=z',),
        )
    )
    assert read('a.txt --quiet --lower=false --input b --input=c --numbers=4,5 d.txt') == Example(
        files=('a.txt', 'd.txt'), quiet=True, lower=False, input=('b', 'c'), numbers=(4, 5)
    )
    assert read('--layer=None --numbers=7') == Example(numbers=(7,))


@pytest.mark.parametrize(
    ('line', 'message'),
    [
        ('--layer=x', '--layer=x: the value must be a whole number'),
        ('--text=a --size=2', r'--size is 2.0; it must be in \(0, 1\]'),
        ('--size=1', '--size has no effect without --text'),
        ('--kind=c', "unknown --kind 'c'; known: a, b"),
        ('--depth=3', '--depth has no effect with --kind=a, only with b'),
        ('--lay=3', 'unknown flag --lay; did you mean --layer'),
        ('--quiet=maybe', '--quiet=maybe: the value must be True or False'),
        ('--numbers=4,x', '--numbers=4,x: the value must be a tuple'),
        ('--numbers=4,0.5', '--numbers is .*; all its values must be whole numbers'),
        ('--rest=x', 'unknown flag --rest'),
    ],
)
def test_a_flag_is_checked_against_its_declaration(line, message):
    with pytest.raises(UserError, match=message):
        read(line)


def test_one_field_declares_a_flag_everywhere(capsys):
    with pytest.raises(SystemExit):
        read('--help')
    printed = capsys.readouterr().out
    assert '  --depth=VALUE: b: depth (default 3)' in printed
    assert '  --size=VALUE: size; in (0, 1] (default 0.5)' in printed
    assert '  --quiet: print nothing' in printed
    assert '  --data.KEY=VALUE: keys' in printed
    assert {'--depth=', '--quiet', '--labels='} <= {*words_of(Example)}
