"""Vectors from texts alone: a run learns, resumes bit for bit, and leaves its decoder behind."""

import json
import shutil

import numpy as np
import pytest

import bert_jax
from bert_jax import export, main, tree_paths
from bert_jax.interop import loading
from bert_jax.loaded import checkpoint_arrays
from bert_jax.tasks import make_task
from tests.problems.embedding.small import config_of, rows, texts

TEXTS = ['the small ship near the sea', 'a cow', 'nobody saw the old harbour !']


def make_config(folder, **keys):
    dev = folder / 'dev.jsonl'
    pairs = [{'text0': pair, 'score': number} for number, pair in enumerate(rows(8, 2, seed=1))]
    dev.write_text(''.join(json.dumps(pair) + '\n' for pair in pairs))
    given = {
        'problem__loss': 'tsdae',
        'problem__text_pooling': 'cls',
        'data__dev': (str(dev),),
        'data__columns__scores': ('score',),
        'model__max_position_embeddings': 64,
        'checkpoint__every_steps': 2,
        'checkpoint__keep': 2,
        'training__steps': 4,
    }
    return config_of(folder, texts(30), **{'dropout': 0.1} | given | keys)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp('tsdae')
    main.run(make_config(folder))
    return folder / 'run'


def test_a_run_is_scored_on_pairs(run):
    saved = json.loads((run / 'dev/metrics.json').read_text())
    assert {'spearman', 'pearson'} <= saved['metrics'].keys()
    state = tree_paths.flatten(checkpoint_arrays.load(run).state)
    assert any('reconstruction' in name for name in state)


@pytest.mark.slow  # test_tuning.py stops and resumes another fine-tuning run
def test_a_run_resumes_bit_for_bit(run):
    straight = tree_paths.flatten(checkpoint_arrays.load(run).state)
    (run / 'results.json').unlink()
    shutil.rmtree(run / 'checkpoints/4')
    main.run(make_config(run.parent))  # steps 3 and 4 again
    resumed = tree_paths.flatten(checkpoint_arrays.load(run).state)
    assert resumed.keys() == straight.keys()
    for name, array in straight.items():
        np.testing.assert_array_equal(resumed[name], array, err_msg=name)


def test_the_decoder_serves_training_alone(run, tmp_path):
    loaded = loading.load_any(run)
    assert loaded.params.keys() == {'encoder'}
    assert loaded.other_parts.keys() == {'reconstruction'}
    model = bert_jax.load(str(run))
    assert model.tasks == ('embed',)
    norms = np.linalg.norm(model.embed(TEXTS), axis=1)
    np.testing.assert_allclose(norms, 1, rtol=1e-5)
    keys = dict(init_from=str(run), data__tokenizer='', model__architecture=None)
    task = make_task(config_of(tmp_path, [['text0', 'text1'], *rows(9, 2)], sizes={}, **keys))
    assert all(name.startswith('encoder/') for name in task.start.params)
    assert task.problem.setup.kept['pooling'] == 'cls'


@pytest.mark.slow
def test_sentence_transformers_computes_the_same_vectors(run):
    library = pytest.importorskip('sentence_transformers')
    folder = run.parent / 'exported'
    export.main([f'--model={run}', f'--output={folder}', '--format=sentence_transformers'])
    found = library.SentenceTransformer(str(folder)).encode(TEXTS)
    np.testing.assert_allclose(bert_jax.load(str(run)).embed(TEXTS), found, atol=1e-6)


@pytest.mark.slow
def test_texts_are_written_again_from_their_vectors(tmp_path):
    """The loss is below that of a decoder that knows all texts, but not which one it has to write.

    Such a decoder needs log(30) nats for each of the 30 texts.
    """
    keys = dict(training__steps=600, schedule__learning_rate=3e-3, problem__deletion=0.2)
    results = main.run(make_config(tmp_path, **keys, checkpoint__every_steps=0, dropout=0.0))
    lines = (tmp_path / 'run/metrics.jsonl').read_text().splitlines()
    last = [one for one in map(json.loads, lines) if one['kind'] == 'train'][-1]
    tokens_per_text = results['tokens'] / (600 * 6) - 1  # without the first token
    assert last['embedding'] < 0.6 * np.log(30) / tokens_per_text
