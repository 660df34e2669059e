"""Texts, and the command line that prepares a corpus of them."""

import json
import pathlib
import random
import subprocess
import sys

import pytest

from bert_jax import prepare

ROOT = pathlib.Path(prepare.__file__).parents[1]
WORDS = ['the', 'old', 'man', 'and', 'a', 'dog', 'went', 'up', 'to', 'green', 'hill', 'where']
TOKENIZER = 'train:wordpiece:60'


def make_text(rng, num_sentences=20):
    """Paragraphs of five sentences."""
    made = [
        ' '.join(rng.choices(WORDS, k=rng.randint(3, 12))).capitalize() + '.'
        for _ in range(num_sentences)
    ]
    return '\n\n'.join(' '.join(made[i : i + 5]) for i in range(0, num_sentences, 5))


@pytest.fixture
def texts(tmp_path):
    """A folder of 30 documents."""
    folder = tmp_path / 'texts'
    folder.mkdir()
    for i in range(30):
        (folder / f'{i:02d}.txt').write_text(make_text(random.Random(i)))
    return folder


@pytest.fixture
def many_texts(tmp_path):
    """The spec of a JSON lines file that takes about a second to prepare."""
    path = tmp_path / 'many.jsonl'
    rng = random.Random(0)
    with open(path, 'w') as file:
        for _ in range(4_000):
            file.write(json.dumps({'text': make_text(rng)}) + '\n')
    return f'jsonl:{path}'


def command(source, output, *more):
    flags = [f'--input={source}', f'--tokenizer={TOKENIZER}', f'--output={output}', *more]
    return [sys.executable, '-m', 'bert_jax.prepare', *flags]


def run(arguments, **options):
    return subprocess.run(
        arguments, cwd=ROOT, capture_output=True, text=True, timeout=120, **options
    )


def contents(directory):
    """The bytes of every file of a corpus, without its creation time."""
    manifest = json.loads((directory / 'manifest.json').read_text())
    date = manifest['created'].encode()
    return {
        str(path.relative_to(directory)): path.read_bytes().replace(date, b'')
        for path in directory.rglob('*')
        if path.is_file()
    }
