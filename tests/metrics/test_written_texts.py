"""ROUGE, BLEU, chrF and exact match equal their packages; classes and numbers as texts."""

import importlib.util
import random

import numpy as np
import pytest
import sacrebleu
from rouge_score import rouge_scorer

from bert_jax.errors import UserError
from bert_jax.metrics import intervals, written_texts

WORDS = [
    'the',
    'ship',
    'and',
    'old',
    'harbour',
    'saw',
    'a',
    'red',
    'tram',
    'on',
    'bridges',
    'running',
    '.',
    'near',
    'it',
]
RNG = random.Random(0)


def text():
    return ' '.join(RNG.choices(WORDS, k=RNG.randint(5, 25))) + '.'


REFERENCES = [[text() for _ in range(RNG.randint(1, 3))] for _ in range(40)]
TEXTS = [RNG.choice(own)[: RNG.randint(10, 80)] + ' ' + text() for own in REFERENCES]
TEXTS[:3] = [REFERENCES[0][0], '', f' {REFERENCES[2][0]}\n']
ALL = ('rouge1', 'rouge2', 'rougeLsum', 'bleu', 'chrf')


def of_packages(rows):
    references, texts = [REFERENCES[n] for n in rows], [TEXTS[n] for n in rows]
    scorer = rouge_scorer.RougeScorer(['rouge1', 'rouge2', 'rougeLsum'], use_stemmer=True)
    lines = written_texts._sentence_lines
    found = {}
    for name in ('rouge1', 'rouge2', 'rougeLsum'):
        split = lines if name == 'rougeLsum' else str
        scores = [
            scorer.score_multi(list(map(split, own)), split(one))[name].fmeasure
            for own, one in zip(references, texts, strict=True)
        ]
        found[name] = np.mean(scores)
    streams = [[own[k] if k < len(own) else None for own in references] for k in range(3)]
    found['bleu'] = sacrebleu.corpus_bleu(texts, streams).score
    found['chrf'] = sacrebleu.corpus_chrf(texts, streams).score
    return found


def test_metrics_equal_the_packages_on_all_texts_and_on_resamples():
    score = written_texts.score_rows(REFERENCES, TEXTS, ALL)
    for rows in (range(40), [3, 3, 3, 17, 2, 39]):
        found = score(np.array(rows))
        assert {name: found[name] for name in ALL} == pytest.approx(of_packages(rows), abs=1e-9)
    everything = score(np.arange(40))
    assert everything['exact_match'] == pytest.approx(2 / 40)
    assert list(everything)[:2] == ['score', 'rouge1']
    assert 0 < everything['rouge2'] < everything['rouge1'] < 1 < everything['bleu'] < 100
    low, high = intervals.of_rows(score, 40)['bleu']
    assert low < everything['bleu'] < high


def test_sentences_are_lines_for_rouge_lsum():
    """With both texts as one line, ROUGE-Lsum would be ROUGE-L."""
    references, texts = [['It rained. We left.']], ['We left. It rained.']
    score = written_texts.score_rows(references, texts, ('rougeLsum',))
    assert score(np.array([0]))['rougeLsum'] == 1.0


def test_classes_and_numbers_are_scored_as_labels():
    gold = [['positive'], ['negative'], ['negative'], ['positive']]
    texts = ['positive', 'negative ', 'a good film', 'negative']
    score = written_texts.score_rows(gold, texts, ('accuracy', 'f1_macro', 'matthews'))
    assert score(np.arange(4))['accuracy'] == 0.5
    assert score(np.array([0, 1]))['matthews'] == 1.0
    numbers = written_texts.score_rows(
        [['1.0'], ['3.8'], ['2.2']], ['1.2', '3.6', 'much'], ('pearson',)
    )
    expected = np.corrcoef([1.0, 3.8, 2.2], [1.2, 3.6, -1.0])[0, 1]
    assert numbers(np.arange(3))['pearson'] == pytest.approx(expected)


def test_missing_packages_and_unknown_metrics_are_refused(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, 'find_spec', lambda name: None if name == 'rouge_score' else found(name)
    )
    written_texts.check(('bleu', 'exact_match'))
    message = 'rouge1, which needs the package rouge-score; pip install "bert-jax.generation'
    with pytest.raises(UserError, match=message):
        written_texts.check(('bleu', 'rouge1'))
    with pytest.raises(UserError, match="unknown metric 'rouge'"):
        written_texts.check(('rouge',))
    with pytest.raises(UserError, match=r'problem\.metrics is empty'):
        written_texts.check(())
