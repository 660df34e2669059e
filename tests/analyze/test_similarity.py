"""Similarity of words in context, and pictures, on a small model."""

import json

import numpy as np
import pytest

import bert_jax
from bert_jax.analyze import __main__ as command
from bert_jax.analyze import occurrences, picture, similarity
from bert_jax.errors import UserError
from bert_jax.metrics import metrics
from tests.inference.small_runs import save_run

PAIRS = """\
the [[ship]] near the storm\tthe [[ship]] near the storm .\tsame
the [[cow]] and the barn\tthe [[moon]]\tdifferent
a [[storm]]\tthe field near the [[storm]]\tsame
{"text": "the moon", "text2": "the ship", "word": "moon", "word2": "ship", "label": "different"}
"""


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    return save_run(tmp_path_factory.mktemp('runs') / 'sentiment', 'classification')


def analyze(run, folder, name, text, *flags):
    path = folder / 'input.txt'
    path.write_text(text)
    command.main([name, f'--model={run}', f'--input={path}', f'--output={folder}/out', *flags])
    return json.loads((folder / 'out/results.json').read_text())['results']


def cosine(a, b):
    return a @ b / np.linalg.norm(a) / np.linalg.norm(b)


def test_cosines_are_those_of_the_marked_words(run, tmp_path):
    found = analyze(run, tmp_path, 'similarity', PAIRS, '--layers=0,1')
    model = bert_jax.load(run)
    for layer in (0, 1):
        (a,), (b,) = model.embed_words(
            ['the ship near the storm', 'the ship near the storm .'], [[(4, 8)]] * 2, layer=layer
        )
        assert found['cosines'][f'layer {layer}'][0] == pytest.approx(cosine(a, b), abs=1e-5)
    auc = found['scores']['layer 0']['auc']['value']
    assert auc == metrics.auc(found['cosines']['layer 0'], [1, 0, 1, 0])
    assert found['majority'] == 0.5


def test_neighbors_are_the_words_with_the_largest_cosines(run, tmp_path):
    texts = ['the cow and the barn', 'a storm near the ship .']
    flags = ('--query=the [[moon]] near', '--top=3', '--layers=-1')
    found = analyze(run, tmp_path, 'similarity', '\n'.join(texts), *flags)['neighbors']['layer 1']
    model = bert_jax.load(run)
    wanted = model.embed_words(['the moon near'])[0][1]
    words = [word for text in texts for word in text.split()]
    cosines = [cosine(v, wanted) for v in np.concatenate(model.embed_words(texts))]
    best = sorted(zip(cosines, words, strict=True), reverse=True)[:3]
    assert [own['word'] for own in found] == [word for _, word in best]
    np.testing.assert_allclose([own['cosine'] for own in found], [c for c, _ in best], atol=1e-5)


VECTORS = """\
4 2
moon 1 0
the 0.6 0.8
storm 0.8 0.6
moon light 1 0
"""


def test_static_neighbors_are_different_words(run, tmp_path):
    (tmp_path / 'vectors.txt').write_text(VECTORS)
    text = 'the cow and The barn\na Storm near the moon .'
    flags = ('--query=the [[moon]] near', '--top=3', f'--static={tmp_path}/vectors.txt')
    found = analyze(run, tmp_path, 'similarity', text, *flags)['static']
    words = ['the', 'cow', 'and', 'barn', 'a', 'Storm', 'near', '.']
    own, of_file = found.values()
    predictor = bert_jax.load(run)
    wanted = predictor.embed_words(['moon'], layer=0)[0][0]
    cosines = [cosine(predictor.embed_words([word], layer=0)[0][0], wanted) for word in words]
    best = sorted(zip(cosines, words, strict=True), reverse=True)[:3]
    assert [one['word'] for one in own['neighbors']] == [word for _, word in best]
    found_cosines = [one['cosine'] for one in own['neighbors']]
    np.testing.assert_allclose(found_cosines, sorted(cosines)[:4:-1], atol=1e-5)
    assert [one['word'] for one in of_file['neighbors']] == ['Storm', 'the']
    np.testing.assert_allclose(
        [one['cosine'] for one in of_file['neighbors']], [0.8, 0.6], atol=1e-6
    )
    assert (of_file['words'], of_file['missing']) == (2, 6)
    report = (tmp_path / 'out/README.md').read_text()
    assert "Static neighbors of 'moon' in the embeddings of the model" in report
    assert 'vectors.txt; 6 of 8 words have no vector' in report


@pytest.mark.parametrize(
    ('vectors', 'error'),
    [
        ('1 2\nship 1 0\n', "has no vector of 'moon', the word of --query"),
        ('2 2\nmoon 1 0\n', 'says 2 vectors, but the number of lines that follow is 1'),
        ('1 2\nmoon 1\n', 'line 2: not a word and 2 finite numbers'),
        ('ship 1 0\nmoon 1 nan\n', 'line 2: not a word and 2 finite numbers'),
        ('ship 1 0\nmoon 1 x\n', 'line 2: not a word and 2 finite numbers'),
        ('moon\n', 'line 1 is not a word and its vector'),
        ('\n', 'has no text'),
    ],
)
def test_wrong_static_vectors_are_one_line(run, tmp_path, vectors, error, capsys):
    (tmp_path / 'vectors.txt').write_text(vectors)
    flags = ('--query=the [[moon]]', f'--static={tmp_path}/vectors.txt')
    with pytest.raises(SystemExit):
        analyze(run, tmp_path, 'similarity', 'the ship', *flags)
    assert error in capsys.readouterr().err.splitlines()[-1]


def test_the_threshold_is_never_tested_on_its_own_pairs():
    gold = np.array([0, 0, 1, 1] * 2)
    assert similarity._accuracy(np.array([0.1, 0.2, 0.8, 0.9] * 2), gold) == 1
    # Random cosines: a threshold chosen on the same pairs would be right more often than this.
    rng = np.random.default_rng(0)
    gold = np.arange(8) % 4 // 2
    accuracies = [similarity._accuracy(rng.random(8), gold) for _ in range(400)]
    assert np.mean(accuracies) < 0.53


def test_the_auc_is_the_share_of_ordered_pairs():
    rng = np.random.default_rng(0)
    scores, gold = rng.integers(5, size=40), rng.integers(2, size=40)
    pairs = [(a > b) + (a == b) / 2 for a in scores[gold == 1] for b in scores[gold == 0]]
    assert metrics.auc(scores, gold) == pytest.approx(np.mean(pairs))


def test_pairs_of_superglue_are_those_of_their_words():
    given = {'word': 'Bank', 'sentence1': 'A bank, a Bank.', 'start1': 10, 'end1': 14}
    given |= {'sentence2': 'He sat on the bank.', 'start2': 14, 'end2': 18}
    first, second = (occurrences.from_json(given, which, 'line 1') for which in (0, 1))
    assert first == ('A bank, a Bank.', (10, 14), '')
    assert second == ('He sat on the bank.', (14, 18), '')
    with pytest.raises(UserError, match='line 1: "marks" is not'):
        occurrences.from_json({**given, 'end1': None}, 0, 'line 1')


TEXTS = 'sea\tthe ship near the storm\nsea\ta ship , a storm\nland\tthe ship and the barn\n'


@pytest.mark.parametrize(
    'method',
    ['pca', 'tsne', pytest.param('umap', marks=pytest.mark.slow)],  # numba compiles it
)
def test_a_picture_has_a_point_for_each_occurrence(run, tmp_path, method):
    if method != 'pca':
        pytest.importorskip({'tsne': 'sklearn', 'umap': 'umap'}[method])
    found = analyze(run, tmp_path, 'picture', TEXTS, '--word=ship', f'--method={method}')
    assert found['labels'] == {'sea': 2, 'land': 1}
    assert np.shape(found['layer 1']['points']) == (3, 2)
    assert (tmp_path / 'out/picture_1.png').stat().st_size > 1000


def test_principal_components_keep_most_of_the_variance():
    vectors = np.random.default_rng(0).normal(size=(50, 6)) * [1, 9, 2, 1, 5, 1]
    points = picture.pca(vectors)
    values = np.sort(np.linalg.eigvalsh(np.cov(vectors.T)))[::-1]
    np.testing.assert_allclose(points.var(0, ddof=1), values[:2])


@pytest.mark.parametrize(
    ('name', 'text', 'flags', 'error'),
    [
        ('similarity', 'the ship', [], 'line 1 is not TEXT<tab>TEXT'),
        ('similarity', 'the ship\tthe moon', [], '0 words are marked as [[word]], must be one'),
        (
            'similarity',
            '{"text": "a", "text2": "b", "word": "ship"}',
            [],
            "'ship' is not a word of",
        ),
        ('similarity', '{"text": "a", "marks": [[0, 9]]}', [], 'mark 0:9 is outside the text of 1'),
        ('similarity', '{', [], 'is not valid JSON'),
        ('similarity', 'the ship', ['--query=a moon'], '--query: 0 words are marked'),
        ('similarity', '[[a]]\t[[b]]\tx', [], "all pairs have the label 'x'"),
        ('similarity', '[[a]]\t[[b]]\tx\n[[a]]\t[[b]]', [], '1 of 2 pairs have a label'),
        ('similarity', '\n', [], 'has no text'),
        ('picture', 'the ship', ['--word=moon'], "'moon' occurs 0 times in"),
        ('picture', 'the ship', ['--word=ship', '--method=lda'], "unknown --method 'lda'"),
        ('picture', '\n', ['--word=ship'], 'has no text'),
    ],
)
def test_wrong_inputs_are_one_line(run, tmp_path, name, text, flags, error, capsys):
    with pytest.raises(SystemExit):
        analyze(run, tmp_path, name, text, *flags)
    assert error in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / 'out').exists()
