"""The documentation agrees with the project: links, config keys, commands and generated pages."""

import functools
import importlib
import pathlib
import re
import runpy
import shlex

import pytest

from bert_jax import answers, flag_parser
from bert_jax.flag_parser import flags_of
from bert_jax.models.model import ModelOutput
from bert_jax.objectives.masking_schemes import TokenRow
from bert_jax.problems import PROBLEMS
from configs import base, finetune
from tests import printed_commands

ROOT = pathlib.Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob('*.md'), *ROOT.glob('docs/*.md'), *ROOT.glob('experiments/**/*.md')])
KEY = re.compile(r'--config\.([\w.]+)=')


def test_the_page_of_config_keys_is_up_to_date():
    page = runpy.run_path(str(ROOT / 'docs/generate.py'))['page']
    assert (ROOT / 'docs/configs.md').read_text() == page(), 'run python docs/generate.py'


def test_the_fields_that_an_objective_reads_are_documented():
    table = (ROOT / 'docs/extending.md').read_text().partition('`ModelOutput` of')[2]
    rows = re.findall(r'^\| `(\w+)` \|', table.partition('An objective returns')[0], re.MULTILINE)
    assert tuple(rows) == ModelOutput._fields


def test_the_fields_that_a_masking_scheme_reads_are_documented():
    section = (ROOT / 'docs/extending.md').read_text().partition('## A masking scheme')[2]
    rows = re.findall(r'^\| `(\w+)` \|', section.partition('```python')[0], re.MULTILINE)
    assert tuple(rows) == TokenRow._fields


def test_the_page_of_config_keys_has_every_key():
    page = (ROOT / 'docs/configs.md').read_text()
    configs = [base.get_config(), *(finetune.get_config(kind) for kind in PROBLEMS)]
    for config in configs:
        for key in flatten(config):
            assert f'`{key}`' in page, key


def flatten(config, prefix=''):
    for key, value in config.items():
        if hasattr(value, 'items'):
            yield from flatten(value, f'{prefix}{key}.')
        else:
            yield prefix + key


@functools.cache
def known_keys() -> set[str]:
    configs = [base.get_config(), *map(finetune.get_config, PROBLEMS)]
    return {key for config in configs for key in flatten(config)}


@pytest.mark.parametrize('page', PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_config_keys_of_a_page_exist(page):
    text = page.read_text()
    for target in re.findall(r'\]\(([^)#\s]+)(?:#[\w-]*)?\)', text):
        if '://' not in target:
            assert (page.parent / target).exists(), target
    assert set(KEY.findall(text)) <= known_keys()


@pytest.mark.parametrize('page', PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_modules_named_in_commands_exist(page):
    for module in re.findall(
        r'python -m ((?:bert_jax|experiments|configs)[\w.]*\w)', page.read_text()
    ):
        path = ROOT / module.replace('.', '/')
        assert path.with_suffix('.py').exists() or (path / '__main__.py').exists(), module
    for path in re.findall(r'python ((?:experiments|docs)/\S+\.py)', page.read_text()):
        assert (ROOT / path).exists(), path
    for path in re.findall(r'--config=((?:configs|experiments)/[\w/]+\.py)', page.read_text()):
        assert (ROOT / path).exists(), path


def test_tasks_and_flags_of_predict_in_the_documentation_exist():
    for page in PAGES:
        if page.name == 'extending.md':  # its tasks are in a copy: test_extending.py
            continue
        for command in re.findall(r'python -m bert_jax\.predict (.*)', page.read_text()):
            words = shlex.split(command.rstrip('`. \\').partition('`')[0])
            task = flag_parser.last_value('task', words)
            flags = flags_of(answers.find(task)) if task else ('help',)
            for word in words:
                name = word.partition('=')[0].removeprefix('--')
                assert name in flags or not word.startswith('--'), (page, word)


@pytest.mark.slow
def test_the_api_reference_has_a_page_for_every_module(tmp_path):
    pytest.importorskip('pdoc')
    names = runpy.run_path(str(ROOT / 'docs/api.py'))['build'](tmp_path)
    assert len(names) > 100
    for name in names:
        page = tmp_path / f'{name.replace(".", "/")}.html'
        assert page.exists() or (page.with_suffix('') / 'index.html').exists(), name


def test_every_printed_command_is_accepted():
    """Without running it; tests/end_to_end/test_printed_commands.py runs all of them."""
    variables, number = {}, 0
    for printed in printed_commands.commands():
        command = printed_commands.parse(printed.text, variables)
        if printed.page == 'docs/extending.md' or not command:
            continue  # tables have these lines only after what the page says was done
        printed_commands.check(command)
        number += 1
    assert number > 50


@pytest.mark.parametrize(
    ('section', 'numbers'),
    [
        ('From text to update', (31, 40)),
        ('From a row of a file to a record', (8, 12)),
        ('From a row of a file to a learned example', (5, 8)),
    ],
)
def test_a_batch_and_a_row_meet_few_names_which_exist(section, numbers):
    page = (ROOT / 'docs/design.md').read_text().partition(f'## {section}')[2]
    row = r'^\| \d+ \| `([\w.]+)` \| `([\w/]+)\.py` \|'
    names = re.findall(row, page.partition('## ')[0], re.MULTILINE)
    assert numbers[0] <= len(names) <= numbers[1]
    for name, file in names:
        found = importlib.import_module(f'bert_jax.{file.replace("/", ".")}')
        for part in name.split('.'):
            found = getattr(found, part)
