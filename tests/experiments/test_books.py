"""Books are selected without held-out texts and copies; encoders count with their best rate."""

import argparse
import json
import pathlib
import random
import subprocess
import sys

import pytest

from experiments.books import evaluate, passages, run


def words(seed: int, count: int = 3000) -> str:
    """Return random sentences."""
    syllables = random.Random(seed).choices(['ba', 'de', 'ki', 'lo', 'mu', 'no', 'ra'], k=3 * count)
    tokens = [''.join(syllables[i : i + 3]) for i in range(0, 3 * count, 3)]
    return '.\n'.join(' '.join(tokens[i : i + 11]) for i in range(0, count, 11))


def layout(text: str) -> str:
    """Return the same words in capitals, on one line, with other punctuation and numbers."""
    return ' '.join(text.upper().replace('.', ' ; 12').split())


@pytest.fixture
def library(tmp_path):
    """Two books, one of them also within a collected edition; a novel that is held out."""
    books = {
        'Ann___One.txt': words(1),
        'Ann___Two.txt': words(2),
        'Ann___Collected.txt': words(3) + '\n' + layout(words(1)),
        'Bob___Copy of the novel.txt': words(4, 500) + layout(words(5)),
        'Bob___Quotes the novel.txt': words(6) + ' '.join(words(5).split()[:25]),
        'Eve___Short.txt': 'One line.',
    }
    (tmp_path / 'books').mkdir()
    for name, text in books.items():
        (tmp_path / 'books' / name).write_text(text)
    (tmp_path / 'novel.txt').write_text(words(5))
    return tmp_path


def test_copies_and_held_out_texts_are_found_in_any_layout(library):
    books = [passages.read(path) for path in sorted((library / 'books').iterdir())]
    reasons = run.select(books, [passages.read(library / 'novel.txt')], [])
    found = {path.name: reason for path, reason in reasons.items()}
    assert found.keys() == {'Ann___One.txt', 'Bob___Copy of the novel.txt'}
    assert '100% is in longer books, most in Ann___Collected.txt' in found['Ann___One.txt']
    assert 'novel.txt' in found['Bob___Copy of the novel.txt']


def test_the_share_of_shared_passages_is_estimated():
    text = words(7, 40_000).split()
    whole = passages.hash_passages([word.encode() for word in text])
    half = passages.hash_passages([word.encode() for word in text[:20_000]])
    assert passages.are_in(half, whole).all()
    assert 0.45 < passages.are_in(whole, half).mean() < 0.55
    assert 0.8 < len(whole) * passages.SAMPLE / 40_000 < 1.2


def test_no_matching_file_is_an_error(library):
    for flag in ('--leave_out=Zoe*', '--held_out=none/*'):
        command = [
            sys.executable,
            '-m',
            'experiments.books.run',
            f'--books={library}/books/*',
            flag,
        ]
        done = subprocess.run(
            [*command, f'--output={library}/out'], capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].startswith('error: no ')


@pytest.mark.slow
def test_the_command_prepares_what_is_left(library):
    command = [sys.executable, '-m', 'experiments.books.run', f'--books={library}/books/*.txt']
    command += [f'--held_out={library}/novel.txt', '--leave_out=Eve*', f'--output={library}/out']
    subprocess.run([*command, '--tokenizer=train:wordpiece:300'], check=True)
    result = json.loads((library / 'out/results.json').read_text())
    assert result['read']['books'] == 6
    assert result['kept']['books'] == 3
    assert {path.name for path in (library / 'out/text').iterdir()} == set(
        json.loads((library / 'out/selection.json').read_text())['kept']
    )


def test_each_task_counts_with_the_rate_of_the_best_mean(tmp_path, monkeypatch):
    best = dict(zip(evaluate.TASKS.values(), [5e-4, 1e-3, 2e-3, 1e-3, 5e-4, 2e-3], strict=True))

    def fine_tune(output, model, name, rate, options):
        return [60.0, 62.0] if rate == best[name] else [50.0, 70.0]

    monkeypatch.setattr(evaluate, 'fine_tune', fine_tune)
    monkeypatch.setattr(evaluate, 'score_pairs', lambda *_, **__: [75.0])
    monkeypatch.setattr(evaluate, 'write_zorro', lambda *_: None)
    options = argparse.Namespace(runs=tmp_path, zorro='zorro', blimp='blimp', per_paradigm=1)
    found = evaluate.measure('name', pathlib.Path('run'), lambda model: {'loss': [3.0]}, options)
    for title, task in evaluate.TASKS.items():
        assert found[title] == found[f'{title}, rate {best[task]:g}'] == [60.0, 62.0]
    assert found[evaluate.MEAN] == [60.0, 62.0]
