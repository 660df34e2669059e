"""Every line of the table of formats in docs/labeled_data.md reads its sample file."""

import pathlib
import re
import shlex

import pytest

from bert_jax.cli import command_line
from bert_jax.labels import formats
from bert_jax.tasks import make_task

PAGE = (pathlib.Path(__file__).parents[2] / 'docs/labeled_data.md').read_text()
(MODEL,) = re.findall(r'    MODEL="(.+)"', PAGE)
LINES = dict(re.findall(r'^\| (.+) \| `(python -m bert_jax.main .+)` \|$', PAGE, re.MULTILINE))
NUM_EXAMPLES = {'csv': 8, 'tsv': 10, 'jsonl': 8, 'label': 6}  # by suffix; else 4


def test_every_file_of_the_formats_is_documented():
    files = {path.name for path in (formats.SAMPLES / 'formats').iterdir()}
    assert {name for name in files if name in PAGE} == files - {'standoff.txt'}
    assert len(LINES) == 12


@pytest.mark.parametrize('name', LINES)
def test_a_documented_line_makes_a_task_of_all_examples(name, tmp_path):
    _, _, *arguments = shlex.split(LINES[name].replace('$MODEL', MODEL))
    config = command_line.parse(arguments, 'usage').config.unlock()
    config.workdir = str(tmp_path)
    splits = make_task(config).splits
    suffix = config.data.train[0].rpartition('.')[2]
    assert len(splits.unsplit) == NUM_EXAMPLES.get(suffix, 4)
    assert splits.dev
    assert not splits.report['malformed'] + splits.report['misplaced']
