"""Sentence embeddings from a file to vectors, scores, and a folder of sentence-transformers."""

import json

import numpy as np
import pytest

import bert_jax
from bert_jax import evaluate, export, main, predict
from bert_jax.errors import UserError
from bert_jax.inference import vector_search
from bert_jax.tasks import make_task
from tests.problems.embedding.small import config_of, rows

TEXTS = ['the small ship near the sea', 'a cow', 'nobody saw the old harbour !']
KEYS = {
    'problem__query_prompt': 'who saw ',
    'problem__document_prompt': 'the lamp . ',
    'problem__text_pooling': 'cls',
    'problem__dimensions': (32, 8),
    'data__dev_fraction': 0.2,
    'model__initializer_range': 0.3,
    'model__max_position_embeddings': 64,
}


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp('embedding')
    main.run(config_of(folder, [['text1', 'text2'], *rows(30, 2)], **KEYS))
    return folder / 'run'


@pytest.fixture(scope='module')
def exported(run):
    folder = run.parent / 'exported'
    export.main([f'--model={run}', f'--output={folder}', '--format=sentence_transformers'])
    return folder


def test_a_run_is_scored_by_retrieval_and_for_each_size(run):
    metrics = json.loads((run / 'dev/metrics.json').read_text())['metrics']
    assert metrics.keys() == {'accuracy', 'mrr'}
    assert 'embedding_loss' in json.loads((run / 'results.json').read_text())['held_out']
    report = (run / 'dev/report.md').read_text()
    assert '## Dimensions' in report
    assert '| 8 |' in report
    records = (run / 'dev/predictions.jsonl').read_text().splitlines()
    assert json.loads(records[0]).keys() == {'id', 'texts', 'gold', 'cosines'}


def test_vectors_have_the_pooling_norm_and_prompts_of_the_training(run):
    model = bert_jax.load(str(run))
    assert dict(model.prompts) == {'query': 'who saw ', 'document': 'the lamp . '}
    assert model.tasks == ('embed',)
    vectors_ND = model.embed(TEXTS)
    plain_ND = model.embed(['the lamp . ' + text for text in TEXTS], 'cls')
    norm_N1 = np.linalg.norm(plain_ND, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors_ND, plain_ND / norm_N1, rtol=1e-5)
    queries_ND = model.embed(TEXTS, prompt='query')
    assert np.abs(queries_ND - vectors_ND).max() > 0.01
    short_ND = model.embed(TEXTS, dimensions=8)
    cut_ND = vectors_ND[:, :8]
    expected = cut_ND / np.linalg.norm(cut_ND, axis=1, keepdims=True)
    np.testing.assert_allclose(short_ND, expected, rtol=1e-5)
    encoder = vector_search.TextEncoder(model)
    np.testing.assert_allclose(encoder.encode_queries(TEXTS), queries_ND, rtol=1e-5)
    np.testing.assert_allclose(encoder.encode_documents(TEXTS), vectors_ND, rtol=1e-5)
    with pytest.raises(UserError, match=r"unknown prompt of .* 'querry'; did you mean query"):
        model.embed(TEXTS, prompt='querry')
    with pytest.raises(UserError, match='dimensions is 33; it must be from 1 to 32'):
        model.embed(TEXTS, dimensions=33)
    with pytest.raises(UserError, match='a pooling of their own'):
        model.embed(TEXTS, 'mean', dimensions=8)


def test_the_command_line_writes_vectors_and_scores_files(run, tmp_path):
    (tmp_path / 'texts.txt').write_text('\n'.join(TEXTS))
    predict.main(
        [
            f'--model={run}',
            '--task=embed',
            '--prompt_name=query',
            '--dimensions=8',
            f'--input={tmp_path / "texts.txt"}',
            f'--output={tmp_path / "vectors.npz"}',
        ]
    )
    expected = bert_jax.load(str(run)).embed(TEXTS, prompt='query', dimensions=8)
    with np.load(tmp_path / 'vectors.npz') as file:
        np.testing.assert_allclose(file['embeddings'], np.stack(expected), rtol=1e-5)
    gold, scored = run.parent / 'train.tsv', tmp_path / 'scored'
    evaluate.main([f'--model={run}', f'--input={gold}', f'--output={scored}'])
    metrics = json.loads((scored / 'metrics.json').read_text())['metrics']
    assert metrics.keys() == {'accuracy', 'mrr'}


@pytest.mark.slow  # export_formats/test_sentence_transformers.py compares a folder's vectors
def test_sentence_transformers_computes_the_same_vectors(run, exported):
    library = pytest.importorskip('sentence_transformers')
    theirs, ours = library.SentenceTransformer(str(exported)), bert_jax.load(str(run))
    for prompt in (None, 'query', 'document'):
        found = theirs.encode(TEXTS, prompt_name=prompt)
        np.testing.assert_allclose(ours.embed(TEXTS, prompt=prompt), found, atol=1e-6)
    short = theirs.encode(TEXTS, truncate_dim=8, normalize_embeddings=True)
    np.testing.assert_allclose(ours.embed(TEXTS, dimensions=8), short, atol=1e-6)
    assert theirs.max_seq_length == 32


@pytest.mark.slow  # interop/test_sentence_modules.py reads the pooling of a folder
def test_training_goes_on_from_the_folder_with_its_pooling(exported, tmp_path, capsys):
    lines = [['text1', 'text2'], *rows(30, 2)]
    keys = {'init_from': str(exported), 'data__tokenizer': '', 'model__architecture': None}
    task = make_task(config_of(tmp_path, lines, sizes={}, **keys))
    assert task.problem.setup.kept['pooling'] == 'cls'
    assert "init_from was trained with the prompts {'query': 'who saw '" in capsys.readouterr().err
    task = make_task(config_of(tmp_path, lines, sizes={}, problem__text_pooling='max', **keys))
    assert task.problem.setup.kept['pooling'] == 'max'
