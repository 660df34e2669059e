"""Search by vectors of tokens: exact, in parts, resumed, in two stages, and with any model."""

import json
import re
import types
from collections import Counter

import numpy as np
import pytest
import torch

import bert_jax
from bert_jax import predict
from bert_jax.errors import UserError
from bert_jax.inference import late_store, reranking
from bert_jax.inference.late_search import LateEncoder, LateSearch
from bert_jax.inference.late_store import LateVectors
from bert_jax.metrics import late_scores

similarity = pytest.importorskip('sentence_transformers.util.similarity')
from tests.interop import published  # noqa: E402
from tests.interop.test_sentence_modules import add_modules, legacy  # noqa: E402
from tests.problems.late_interaction import folders  # noqa: E402
from tests.problems.late_interaction.folders import DOCUMENTS, QUERIES  # noqa: E402

RNG = np.random.default_rng(0)
TEXTS = [document for document in DOCUMENTS if document] + ['the sea', 'a lamp is what ?']


def unit(number, size=16):
    vectors = RNG.normal(size=(number, size))
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


MANY = [unit(length) for length in RNG.integers(0, 9, 300)]
ASKED = [unit(length) for length in (4, 1, 7)]
EXPECTED_QN = similarity.maxsim(list(map(torch.tensor, ASKED)), list(map(torch.tensor, MANY)))
EXPECTED_QN = EXPECTED_QN.numpy()


def search_of(vectors, compared_by='maxsim'):
    return LateSearch(types.SimpleNamespace(compared_by=compared_by), vectors)


def in_parts(precision, size=70):
    parts = [late_store.Part.of(MANY[n : n + size], precision) for n in range(0, len(MANY), size)]
    return LateVectors(tuple(parts))


@pytest.mark.parametrize('blocks', [1, 50, 2**20])
def test_scores_are_those_of_sentence_transformers_in_blocks_of_any_size(blocks):
    offsets = np.cumsum([0, *map(len, MANY)])
    found = late_scores.max_similarities(ASKED, np.concatenate(MANY), offsets, products=blocks)
    np.testing.assert_allclose(found, EXPECTED_QN, atol=1e-5)


def test_the_nearest_are_those_of_a_full_sort():
    found = search_of(in_parts('float32')).nearest(ASKED, 9)
    expected_QK = np.argsort(-EXPECTED_QN, axis=1, kind='stable')[:, :9]
    np.testing.assert_array_equal(found.documents_QK, expected_QK)
    expected = np.take_along_axis(EXPECTED_QN, expected_QK, axis=1)
    np.testing.assert_allclose(found.scores_QK, expected, atol=1e-5)
    mean = search_of(in_parts('float32'), 'meanmaxsim').nearest(ASKED, 9)
    np.testing.assert_allclose(mean.scores_QK, expected / [[4], [1], [7]], atol=1e-5)
    with pytest.raises(UserError, match='no documents to search'):
        search_of(LateVectors(())).nearest(ASKED, 9)


@pytest.mark.parametrize(
    ('precision', 'error', 'share'), [('float16', 2e-3, 0.5), ('int8', 0.03, 0.5)]
)
def test_smaller_vectors_give_nearly_the_same_scores(precision, error, share):
    whole, small = in_parts('float32'), in_parts(precision)
    found = search_of(small).scores_of(ASKED)
    is_real = EXPECTED_QN > late_scores.EMPTY
    assert np.abs(found - EXPECTED_QN)[is_real].max() < error
    assert (found == EXPECTED_QN)[~is_real].all()
    tokens = [sum(part.tokens_YE.nbytes for part in vectors.parts) for vectors in (small, whole)]
    assert tokens[0] <= share * tokens[1]


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return folders.sentence_transformers(tmp_path_factory.mktemp('late') / 'model')


@pytest.fixture(scope='module')
def model(folder):
    return bert_jax.load(str(folder))


def test_an_interrupted_index_is_resumed_after_its_last_part(model, tmp_path):
    encoder, texts, made = LateEncoder(model, 'float16'), TEXTS * 3, []

    def encode(some):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(len(some))
        return encoder.encode_documents(some)

    arguments = tmp_path / 'index', {'model': 'a'}, texts
    with pytest.raises(KeyboardInterrupt):
        late_store.load_or_make(*arguments, encode, Counter(), documents=4)
    resumed = []
    counts = Counter()
    vectors, news = late_store.load_or_make(
        *arguments, lambda some: resumed.append(1) or encoder.encode_documents(some), counts, 4
    )
    assert 'resumed after 8 of 18 documents' in news
    assert len(resumed) == 3
    whole, _ = late_store.load_or_make(
        tmp_path / 'whole', {}, texts, encoder.encode_documents, Counter(), 4
    )
    for own, other in zip(vectors.documents(range(18)), whole.documents(range(18)), strict=True):
        np.testing.assert_array_equal(own, other)
    again, news = late_store.load_or_make(*arguments, encode, Counter(), 4)
    assert (news, again.num_documents) == ('', 18)
    _, news = late_store.load_or_make(
        arguments[0], {'model': 'b'}, texts[:4], encoder.encode_documents, counts
    )
    assert 'computed anew: changed model' in news
    (arguments[0] / '00000.tokens.npy').write_bytes(b'')
    with pytest.raises(UserError, match='00000.tokens.npy is damaged; remove'):
        late_store.load_or_make(
            arguments[0], {'model': 'b'}, texts[:4], encoder.encode_documents, counts
        )


def test_a_foreign_folder_is_not_replaced(model, tmp_path):
    (tmp_path / 'index').mkdir()
    (tmp_path / 'index/notes.txt').write_text('')
    with pytest.raises(UserError, match='has no vectors; choose a new or an empty folder'):
        late_store.load_or_make(
            tmp_path / 'index', {}, TEXTS, LateEncoder(model).encode_documents, Counter()
        )


def run(folder, **flags):
    """Run a search; return the ids of the results of each query, and their scores."""
    words = {'output': folder / 'out.jsonl', 'documents': folder / 'texts.txt', 'top': 3} | flags
    (folder / 'texts.txt').write_text('\n'.join(TEXTS) + '\n')
    (folder / 'queries.txt').write_text('\n'.join(QUERIES[:3]) + '\n')
    predict.main(
        [
            '--task=search',
            '--overwrite',
            f'--input={folder / "queries.txt"}',
            *(f'--{name}={value}' for name, value in words.items()),
        ]
    )
    lines = (folder / 'out.jsonl').read_text().splitlines()
    found = [json.loads(line)['results'] for line in lines]
    return [[hit['id'] for hit in hits] for hits in found], [
        [hit['score'] for hit in hits] for hits in found
    ]


def test_the_command_finds_what_sentence_transformers_finds(folder, tmp_path):
    _, _, scores_QN = folders.of_theirs(folder, QUERIES[:3], TEXTS)
    ids, scores = run(tmp_path, model=folder, vectors=tmp_path / 'index', precision='float32')
    expected_QK = np.argsort(-scores_QN, axis=1, kind='stable')[:, :3]
    assert ids == [[str(n + 1) for n in row] for row in expected_QK]
    np.testing.assert_allclose(scores, np.take_along_axis(scores_QN, expected_QK, 1), atol=1e-5)
    _, halves = run(tmp_path, model=folder, vectors=tmp_path / 'half')
    np.testing.assert_allclose(halves, scores, atol=5e-3)
    assert halves != scores


def test_candidates_of_bm25_get_the_scores_of_the_model(folder, tmp_path):
    whole = dict(vectors=tmp_path / 'index', precision='float32')
    ids, scores = run(tmp_path, model=folder, top=len(TEXTS), **whole)
    known = [dict(zip(*pair, strict=True)) for pair in zip(ids, scores, strict=True)]
    found, of_two = run(tmp_path, model=folder, first_stage='bm25', candidates=3, **whole)
    for own, its_scores, all_scores in zip(found, of_two, known, strict=True):
        assert its_scores == sorted(its_scores, reverse=True)
        np.testing.assert_allclose(its_scores, [all_scores[n] for n in own], atol=1e-6)


def test_a_dense_first_stage_and_a_late_reranker(folder, tmp_path):
    dense = published.folder(tmp_path / 'bert', 'BertModel')
    ids, _ = run(tmp_path, model=folder, first_stage=dense, candidates=6, top=6)
    assert {*map(len, ids)} == {6}
    found, _ = run(tmp_path, model=dense, reranker=folder, candidates=6, top=6)
    whole, _ = run(tmp_path, model=folder, precision='float32', top=6)
    assert found == whole


@pytest.mark.parametrize(
    ('flags', 'message'),
    [
        (dict(similarity='cosine'), '--similarity has no effect: .* makes a vector for each token'),
        (dict(long_texts='windows'), '--long_texts has no effect: .* a vector for each token'),
        (dict(dimensions=4), '--dimensions has no effect: .* a vector for each token'),
        (dict(candidates=5), '--candidates needs --reranker or --first_stage'),
        (dict(first_stage='bm25', candidates=2), '--top=3 is more than --candidates=2'),
    ],
)
def test_flags_that_do_not_fit_are_one_line(folder, tmp_path, flags, message, capsys):
    with pytest.raises(SystemExit):
        run(tmp_path, model=folder, **flags)
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(message, line)


def test_every_kind_of_model_has_similarities_and_reranks(model, folder, tmp_path):
    bare = published.folder(tmp_path / 'bert', 'BertModel')
    pairs = published.folder(tmp_path / 'reranker', 'BertForSequenceClassification', num_labels=1)
    with pytest.raises(UserError, match='has no head for rerank'):
        bert_jax.load(str(bare)).rerank(['a'], [['b']])
    dense = bert_jax.load(str(add_modules(bare, legacy('mean'), ['Normalize'])))
    queries, documents = QUERIES[:2], TEXTS[:3]
    for one in (dense, model, bert_jax.load(str(pairs))):
        scores_QN = one.similarity(queries, documents)
        assert scores_QN.shape == (2, 3)
        records = one.rerank(queries, [documents, documents[:2]])
        assert [len(record['results']) for record in records] == [3, 2]
        best = records[0]['results'][0]
        assert best.get('logit', best['score']) == pytest.approx(
            float(scores_QN[0].max()), abs=1e-5
        )
        assert best['text'] == documents[int(scores_QN[0].argmax())]
    vectors = dense.embed([*queries, *documents])
    unit_ND = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines_QN = unit_ND[:2] @ unit_ND[2:].T
    np.testing.assert_allclose(dense.similarity(queries, documents), cosines_QN, atol=1e-5)
    assert model.similarity([], documents).shape == (0, 3)
    scorer = reranking.scorer_of(model, TEXTS)
    found = scorer.score_candidates(queries, np.array([[2, 0], [1, 2]]))
    expected = np.take_along_axis(model.similarity(queries, TEXTS), np.array([[2, 0], [1, 2]]), 1)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_hard_negatives_are_mined_by_vectors_of_tokens(model, folder, tmp_path):
    (tmp_path / 'texts.txt').write_text('\n'.join(TEXTS) + '\n')
    (tmp_path / 'answers.txt').write_text(f'the ship\t{TEXTS[0]}\n')
    flags = dict(model=folder, documents=tmp_path / 'texts.txt', input=tmp_path / 'answers.txt')
    flags |= dict(output=tmp_path / 'mined.jsonl', vectors=tmp_path / 'index', negatives=2)
    flags |= dict(precision='float32')
    predict.main(['--task=mine', *(f'--{name}={value}' for name, value in flags.items())])
    mined = json.loads((tmp_path / 'mined.jsonl').read_text())
    scores_N = model.similarity(['the ship'], TEXTS)[0]
    others = [n for n in np.argsort(-scores_N, kind='stable') if n != 0][:2]
    assert mined['negatives'] == [TEXTS[n] for n in others]
    np.testing.assert_allclose(mined['scores'], scores_N[[0, *others]], atol=1e-5)
