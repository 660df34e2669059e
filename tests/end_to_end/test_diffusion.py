"""A run of masked diffusion: its metrics, the samples in its card, and what it writes."""

import math
import re

import numpy as np
import pytest

import bert_jax
from bert_jax import main
from bert_jax.corpus.corpus import Corpus
from tests.end_to_end import small


def test_a_run_of_masked_diffusion_shows_samples_and_writes(tmp_path, capsys):
    changes = {
        'training__steps': (60,),
        'training__max_predictions': (16,),
        'objectives__mlm': 0.0,
        'objectives__nsp': 0.0,
        'objectives__diffusion': 1.0,
        'data__segments': 'full_sentences',
        'evaluation__cloze_examples': 2,
        'evaluation__every_steps': 0,
        'optimizer__ema': 0.9,
    }
    results = main.run(small.config(tmp_path, **small.ONE_STAGE | changes))
    held_out, run = results['held_out'], tmp_path / 'run'
    corpus = Corpus.open(tmp_path / 'corpus')
    text = (tmp_path / 'text.txt').read_bytes()
    assert 0 < corpus.manifest['splits']['held_out']['text_bytes'] < len(text)
    scale = math.log(2) * corpus.bytes_per_token('held_out')
    for name, nats in (('diffusion', 'diffusion_bound'), ('unigram', 'unigram_entropy')):
        assert held_out[f'{name}_bits_per_byte'] == pytest.approx(held_out[nats] / scale)

    samples = (run / 'samples.md').read_text(encoding='utf-8')
    assert samples.count('\n> ') == 1
    assert samples in (run / 'README.md').read_text(encoding='utf-8')
    for line in re.findall('^> .*', samples, flags=re.MULTILINE):
        prompt, written = re.fullmatch(r'> (.*) \*\*(.+)\*\*', line).groups()
        assert not re.search('MASK|SEP|CLS|PAD|UNK', prompt + written)

    model = bert_jax.load(run)
    capsys.readouterr()
    (filled,) = model.generate(['the [MASK:3] near the [MASK]'], temperature=0)
    assert capsys.readouterr().err == ''  # no warning
    assert len(filled.tokens) == 4
    assert np.isfinite(filled.log_probabilities).all()
    assert model.fill_mask(['the [MASK]'])
