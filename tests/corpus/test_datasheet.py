"""Answers of people in the datasheet of a corpus."""

import pytest

from bert_jax import prepare
from bert_jax.corpus import datasheet
from bert_jax.errors import UserError

ANSWERS = """\
## Motivation
Collected for a course.

- paid by nobody

## uses
Not for children.
"""


def test_answers_are_added_to_a_finished_corpus_and_replaced(tmp_path):
    (tmp_path / 'books.txt').write_text('\n\n'.join(f'A ship {n} sailed.' for n in range(40)))
    (tmp_path / 'answers.md').write_text(ANSWERS)
    flags = [
        f'--input=text:{tmp_path}/books.txt;documents=blank_line',
        f'--output={tmp_path}/corpus',
    ]
    flags += ['--tokenizer=train:wordpiece:60', '--workers=0', '--held_out_fraction=0.2']
    prepare.main(flags)
    path = tmp_path / 'corpus/DATASHEET.md'
    before = path.read_text()
    assert before.count('Not answered: ') == len(datasheet.QUESTIONS)
    manifest = (tmp_path / 'corpus/manifest.json').stat().st_mtime_ns
    for _ in range(2):
        prepare.main([*flags, f'--answers={tmp_path}/answers.md'])
    text = path.read_text()
    assert text.startswith(before.partition('## Questions of Gebru')[0])
    assert '### Motivation\n\nCollected for a course.\n\n- paid by nobody\n\n### Comp' in text
    assert text.count('Not for children.') == 1
    assert text.count('Not answered: ') == len(datasheet.QUESTIONS) - 2
    assert (tmp_path / 'corpus/manifest.json').stat().st_mtime_ns == manifest
    prepare.main([*flags, '--verify'])


@pytest.mark.parametrize(
    ('text', 'error'),
    [
        ('Collected for a course.', 'begin with a heading, such as "## Motivation"'),
        ('## Motives\nx', "unknown heading of .*answers.md 'Motives'; known: Collection process"),
        ('## Uses\nx\n## Uses\ny', "has the heading 'Uses' twice"),
    ],
)
def test_a_file_without_known_headings_is_refused(tmp_path, text, error):
    (tmp_path / 'answers.md').write_text(text)
    with pytest.raises(UserError, match=error):
        datasheet.read_answers(tmp_path / 'answers.md')
