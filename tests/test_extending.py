"""docs/extending.md applied to a copy of the project: the tests of the tables pass there."""

import json
import os
import subprocess
import sys

import pytest

from tests import extending
from tests.interop import published

REGISTRIES = (
    'tests/test_config_keys.py',
    'tests/test_docs.py',
    'tests/test_imports.py',
    'tests/test_layers.py',
    'tests/text/sources/test_registry.py',
    'tests/objectives/test_objective_flops.py',
    'tests/objectives/test_table.py',
    'tests/problems/test_registry.py',
)


def run(root, *command, folder=None) -> subprocess.CompletedProcess:
    """Run Python with the copy of the project."""
    environment = os.environ | {'PYTHONPATH': str(root), 'PYTHONDONTWRITEBYTECODE': '1'}
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder or root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope='module')
def copy(tmp_path_factory):
    root = tmp_path_factory.mktemp('copy')
    extending.apply(root)
    done = run(root, 'docs/generate.py')
    assert done.returncode == 0, done.stderr
    return root


def test_every_table_has_its_new_line(copy):
    code = (
        'from bert_jax.answers import ANSWERS\n'
        'from bert_jax.objectives import OBJECTIVES\n'
        'from bert_jax.objectives.masking_schemes import SCHEMES\n'
        'from bert_jax.models.encoders import ENCODERS\n'
        'from bert_jax.problems import PROBLEMS\n'
        'from bert_jax.text.sources import SOURCES\n'
        'from bert_jax.tasks.pretraining.sources import SEGMENTS\n'
        'from bert_jax.training.optimizers import DIRECTIONS\n'
        'from bert_jax import analyze, export_formats\n'
        'from bert_jax.interop.families import FAMILIES\n'
        'print(OBJECTIVES["recovery"].__name__, SCHEMES["first"].__name__,'
        'ENCODERS["bag_of_words"].__name__, PROBLEMS["word_count"].load().loss.__name__,'
        'SOURCES["line"].__name__, "beginnings" in SEGMENTS,'
        '"key_values" in PROBLEMS["tagging"].readers, "lion" in DIRECTIONS,'
        'FAMILIES["house_bert"].prefix, analyze.ANALYSES["token_counts"].__name__,'
        'export_formats.FORMATS["program"].__name__, ANSWERS["tokenize"].__name__)'
    )
    done = run(copy, '-c', code)
    assert done.stdout.split() == [
        'Recovery',
        'FirstTokens',
        'BagOfWords',
        'CountLoss',
        'RepeatedLine',
        *('True', 'True', 'True'),
        *('house.', 'TokenCounts', 'Program', 'Tokenize'),
    ], done.stderr


def test_a_new_task_of_predict_reads_a_table_and_has_its_flag(copy, tmp_path):
    published.folder(tmp_path / 'bert')
    (tmp_path / 'a.csv').write_text('text\n"the ship\tnear"\n')
    flags = [f'--model={tmp_path}/bert', '--task=tokenize', f'--input={tmp_path}/a.csv']
    done = run(copy, '-m', 'bert_jax.predict', *flags, '--ids', '--output=-')
    record = json.loads(done.stdout)
    vocabulary = published.vocabulary()
    assert [vocabulary[i] for i in record.pop('ids')] == record['tokens'], done.stderr
    assert record == {'text': 'the ship\tnear', 'tokens': ['the', 'ship', 'near']}
    done = run(copy, '-m', 'bert_jax.predict', *flags, '--top=3', '--output=-')
    assert '--top has no effect with --task=tokenize, only with fill_mask' in done.stderr
    done = run(copy, '-m', 'bert_jax.predict', '--help')
    assert '  tokenize           the tokens of a text' in done.stdout


@pytest.mark.slow
def test_the_tests_of_the_tables_pass_in_the_copy(copy):
    counts = 'few_modules or without_the_other_families'  # the copy has more modules
    options = ('-n', '0', '-q', '-m', 'not slow', '-k', f'not ({counts})')
    done = run(copy, '-m', 'pytest', *options, *REGISTRIES)
    assert done.returncode == 0, done.stdout[-3000:]
