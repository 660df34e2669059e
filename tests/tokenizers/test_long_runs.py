"""Vocabularies are trained on text with very long runs without a space, which are cut."""

import random
import re

import pytest

from bert_jax import tokenizers
from bert_jax.corpus import preparation
from bert_jax.tokenizers import long_runs
from bert_jax.tokenizers.long_runs import Cuts, Words

ALPHABETS = {'Chinese': [chr(0x4E00 + i) for i in range(300)], 'DNA': list('ACGT')}
WORDS = 'some words here and there. ' * 20


def long_line(alphabet, size):
    return ''.join(random.Random(0).choices(ALPHABETS[alphabet], k=size))


@pytest.mark.parametrize(
    ('kind', 'alphabet', 'size', 'pieces'),
    [
        # SentencePiece fails on 200,000 characters, and bytebpe takes a minute for 120,000.
        ('unigram', 'Chinese', 400_000, 8_192),
        ('sentencepiece-bpe', 'DNA', 400_000, 8_192),
        ('bytebpe', 'Chinese', 120_000, 1_024),
        ('bytebpe', 'DNA', 400_000, 1_024),
    ],
)
def test_a_long_line_trains_a_vocabulary(kind, alphabet, size, pieces, capsys):
    line = long_line(alphabet, size)
    made = tokenizers.train(f'{kind}:600', [line, WORDS], lowercase=False)
    assert (
        f'warning: 1 runs of text without a space, the longest of {size:,} characters, were cut '
        f'into pieces of {pieces:,}'
    ) in capsys.readouterr().err
    ids, _ = made.encode_ids([line[:300]])
    assert made.decode(ids.tolist()).strip() == line[:300]
    assert len(made.vocab) > 300


@pytest.mark.parametrize('kind', ['unigram', 'sentencepiece-bpe', 'bytebpe'])
def test_ordinary_text_trains_the_same_vocabulary(kind, monkeypatch, capsys):
    words = re.sub(r'\s', '', WORDS)
    texts = [WORDS * 20, '我们今天去看电影。' * 20 + ' end', words * 2, '-' * 300 + ' ' * 300]
    made = tokenizers.train(f'{kind}:300', texts)
    assert 'cut' not in capsys.readouterr().err
    monkeypatch.setattr(Cuts, 'cut', lambda self, text: [text])
    assert tokenizers.train(f'{kind}:300', texts).fingerprint == made.fingerprint


@pytest.mark.parametrize('words', [long_runs.SPACED, long_runs.OF_ONE_KIND])
def test_only_long_runs_are_cut_and_no_character_is_lost(words):
    draw = random.Random(0)
    limit = 8
    for _ in range(3000):
        text = ''.join(
            draw.choice('aé1.- \n字') * draw.choice([1, 1, 2, 7, 8, 9, 17]) for _ in range(6)
        )
        cuts = Cuts(Words(words.runs, limit))
        pieces = cuts.cut(text)
        assert ''.join(pieces) == text
        runs = [match[0] for match in words.runs.finditer(text)]
        assert cuts.number == sum(len(run) > limit for run in runs)
        assert len(pieces) == 1 + sum((len(run) - 1) // limit for run in runs)
        assert all(len(m[0]) <= limit for piece in pieces for m in words.runs.finditer(piece))


def test_a_language_that_the_vocabulary_does_not_cover_is_a_warning(tmp_path, capsys):
    for number in range(20):
        (tmp_path / f'{number}.txt').write_text(f'Number {number}. {WORDS}')
        (tmp_path / f'{number}.dna').write_text(long_line('DNA', 300 + number))
    specs = [f'text:{tmp_path}/*.txt;language=en', f'text:{tmp_path}/*.dna;language=dna']
    for tokenizer, warns in (('train:wordpiece:60', True), ('train:bytebpe:300', False)):
        output = tmp_path / str(warns)
        made = preparation.prepare(specs, tokenizer, output, workers=0, held_out_fraction=0.1)
        lines = [line for line in capsys.readouterr().err.split('\n') if 'are unknown' in line]
        assert len(lines) == warns
        if warns:
            assert lines[0].startswith(
                "warning: 100.0% of the tokens in language 'dna' are unknown"
            )
            assert [s['report']['unknown_tokens'] for s in made.manifest['sources']] == [0, 20]
            assert 'unknown tokens: 20' in (output / 'DATASHEET.md').read_text()
