"""Damaged files are read or refused in one line, never with a traceback."""

import pathlib
import random

import pytest

from bert_jax.errors import UserError
from bert_jax.labels import formats
from configs.finetune_tasks import TASKS
from tests.labels.reading import read

RTE = (
    '<c><pair label="YES"><text>A <PER>b</PER></text><h>B</h></pair>'
    '<pair label="NO"><text>C d</text><h>D</h></pair></c>'
)
ANNOTATIONS = 'T1\tPER 0 4\tAnna\nT2\tLOC 10 14\tRome\nR1\tin Arg1:T1 Arg2:T2\n'
FILES = {
    name: (task['kind'], task['data'], formats.SAMPLES / task['data']['train'][0][7:])
    for name, task in TASKS.items()
    if name.startswith('sample_')
}
FILES |= {
    'xml': ('classification', dict(format='xml', columns={'text2': 'h'}), RTE),
    'brat': ('spans', dict(format='brat'), ANNOTATIONS),
    'trec': ('classification', dict(format='labeled_lines'), 'A:b what is\nC:d how many\n' * 9),
}
PIECES = (
    '"', '\t', ',', '\n', '\r', '\r\n', '\0', '[', '{', '}', ']', '<', '>', '&', '<![', '<!--', '#',
    '\\', '\\ud800', ':', '-DOCSTART-', 'I-', 'O', 'null', 'NaN', '1e999', '-1', 'true', '""', '{}',
    '[1]', '\ufeff', '\u2028', '\x85', '\udcff', '9' * 5000, 'a' * 100_000,
)  # fmt: skip


def damage(text: str, seed: int) -> str:
    """Insert, delete and cut at random places."""
    draw = random.Random(seed)
    for _ in range(draw.choice((1, 2, 8))):
        at, length = draw.randrange(len(text) + 1), draw.randrange(12)
        kept = text[at + length :] if draw.random() < 0.9 else ''
        text = text[:at] + draw.choice(PIECES) * draw.randrange(2) + kept
    return text.replace('\n', draw.choice(('\n', '\n', '\r\n', '\r')))


@pytest.mark.parametrize('name', FILES)
def test_a_damaged_file_is_read_or_refused_in_one_line(tmp_path, name):
    kind, data, source = FILES[name]
    text = source.read_text() if isinstance(source, pathlib.Path) else source
    path = tmp_path / 'a.ann'
    path.with_suffix('.txt').write_text('Anna left Rome.\n')
    allowed = dict(malformed_fraction=1.0, misplaced_fraction=1.0, dev_fraction=0.0)
    outcomes = set()
    for seed in range(40):
        path.write_bytes(damage(text, seed).encode('utf-8', 'surrogateescape'))
        try:
            lines = read(kind, **data | dict(train=(str(path),)) | allowed).report.lines()
        except UserError as error:
            lines = [str(error)]
        outcomes.add(len(lines))
        assert all(line.isprintable() and len(line) < 2000 for line in lines), lines
    assert len(outcomes) > 1
