"""SPLADE from a file to sparse vectors, scores, a search, and a folder of SparseEncoder."""

import json

import jax
import numpy as np
import pytest
import torch
from flax import traverse_util

import bert_jax
from bert_jax import averages, evaluate, export, main, predict
from bert_jax.errors import UserError
from bert_jax.models import initial_values
from bert_jax.tasks import make_task
from configs import finetune
from tests.interop import published

library = pytest.importorskip('sentence_transformers')
pytestmark = pytest.mark.usefixtures('no_loader_process_in_file')
SENTENCES = [
    ('the ship', 'the ship near the wave', 'a cow near the barn'),
    ('milk of a cow', 'the barn and the milk', 'the storm'),
    ('moon and star', 'a rocket near the moon', 'the tram'),
    ('tram', 'the tram near the bridge', 'the ship and the wave'),
    ('storm', 'the storm and the ship', 'a rocket near the star'),
    ('hen', 'the hen near the barn', 'the bridge'),
    ('harbour', 'the harbour and the wave', 'the milk'),
    ('bridge', 'a bridge near the harbour', 'the hen and the moon'),
]
WEIGHTS = {'problem.query_weight': 0.04, 'problem.document_weight': 0.07}


@pytest.fixture(scope='module')
def base(tmp_path_factory):
    return published.folder(tmp_path_factory.mktemp('base') / 'mlm', 'BertForMaskedLM')


def config_of(base, folder, **keys):
    path = folder / 'train.jsonl'
    names = ('query', 'document', 'other')
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in SENTENCES]
    path.write_text('\n'.join(lines))
    config = finetune.get_config('sparse_embedding')
    config.init_from, config.workdir = str(base), str(folder / 'run')
    config.data.update(train=(str(path),), dev_fraction=0.0)
    config.data.columns.texts = names
    config.model.update(hidden_dropout=0.0, attention_dropout=0.0)
    config.training.update(steps=4, epochs=0.0, batch_size=8, sequence_length=16)
    config.schedule.learning_rate = 1e-3
    config.update_from_flattened_dict(WEIGHTS | keys)
    return config


@pytest.fixture(scope='module')
def run(base, tmp_path_factory):
    folder = tmp_path_factory.mktemp('sparse')
    keys = {'data.dev_fraction': 0.4, 'problem.max_active': 9, 'problem.query_prompt': 'a '}
    main.run(config_of(base, folder, **keys, **{'training.batch_size': 4}))
    return folder / 'run'


def test_loss_and_gradient_are_those_of_sentence_transformers(base, tmp_path):
    """Through the whole model, on the texts of a packed batch, halfway through the warm-up."""
    from sentence_transformers.sparse_encoder import losses

    task = make_task(config_of(base, tmp_path))
    batch = task.source.batch(0)
    assert np.max(batch['segment_ids']) > 1  # packed
    new = initial_values.draw(task.init, 0)  # also the pooler, which no head reads
    params = new | dict(task.start.params)

    def loss(flat):
        terms = task.terms(
            traverse_util.unflatten_dict(flat, sep='/'), batch, None, train=False, progress=1 / 6
        )
        return averages.mean(terms['embedding']) + averages.mean(terms['regularizer'])

    found, gradient = jax.jit(jax.value_and_grad(loss))(params)
    model = library.SparseEncoder(str(base), device='cpu')
    model.train(False)  # no dropout; the pooling works in place unless it is trained
    model[1].train(True)
    splade = losses.SpladeLoss(
        model, losses.SparseMultipleNegativesRankingLoss(model), 0.07 / 4, 0.04 / 4
    )
    features = [model.preprocess(list(column)) for column in zip(*SENTENCES, strict=True)]
    expected = sum(splade(features, None).values())
    expected.backward()
    assert float(found) == pytest.approx(float(expected.detach()), rel=1e-6)
    theirs = dict(model.named_parameters())
    (bias,) = (value for name, value in theirs.items() if name.endswith('predictions.bias'))
    own = np.asarray(gradient['mlm/head/bias'])[: len(bias)]
    np.testing.assert_allclose(own, bias.grad.numpy(), atol=1e-5 * np.abs(own).max())
    (table,) = (v for n, v in theirs.items() if n.endswith('word_embeddings.weight'))
    own = np.asarray(gradient['encoder/embeddings/token'])[: len(table)]
    np.testing.assert_allclose(own, table.grad.numpy(), atol=1e-5 * np.abs(own).max())
    assert isinstance(table.grad, torch.Tensor)


def test_the_regularizer_warms_up_and_is_logged(run):
    records = [json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()]
    (early, late) = [record for record in records if record['kind'] == 'train']
    full = [0.04 * one['query_flops'] + 0.07 * one['document_flops'] for one in (early, late)]
    # Factors of steps 0 to 3, a third of the run being the warm-up: 0, 0.75², 1, 1.
    assert early['regularizer'] == pytest.approx(0.75**2 / 2 * full[0], rel=0.05)
    assert late['regularizer'] == pytest.approx(full[1], rel=1e-5)
    assert late['loss'] == pytest.approx(late['embedding'] + late['regularizer'], rel=1e-5)
    metrics = json.loads((run / 'dev/metrics.json').read_text())['metrics']
    assert {*metrics} >= {'accuracy', 'mrr', 'triplet_accuracy', 'query_active', 'document_active'}
    assert metrics['document_active'] <= 9
    held_out = json.loads((run / 'results.json').read_text())['held_out']
    assert {'embedding_loss', 'regularizer_loss'} <= {*held_out}


def test_a_run_has_the_vectors_of_the_exported_folder(run, tmp_path):
    export.main([f'--model={run}', f'--output={tmp_path}/out'])
    theirs, ours = library.SparseEncoder(str(tmp_path / 'out'), device='cpu'), bert_jax.load(run)
    assert dict(ours.prompts) == {'query': 'a ', 'document': ''}
    texts = [row[1] for row in SENTENCES]
    for prompt in ('query', 'document'):
        expected = theirs.encode(texts, prompt_name=prompt).to_dense().numpy()
        found = ours.embed_sparse(texts, prompt=prompt)
        np.testing.assert_allclose(found.toarray(), expected, rtol=1e-5, atol=2e-6)
        assert np.diff(found.indptr).max() <= 9
    with pytest.raises(UserError, match='makes sparse vectors: use embed_sparse'):
        ours.embed(texts)


def test_search_keeps_sparse_vectors(run, tmp_path, capsys):
    texts = [row[1] for row in SENTENCES]
    (tmp_path / 'texts.txt').write_text('\n'.join(texts))
    (tmp_path / 'queries.txt').write_text('\n'.join(row[0] for row in SENTENCES))
    flags = [f'--model={run}', '--task=search', f'--documents={tmp_path}/texts.txt', '--top=3']
    flags += [f'--input={tmp_path}/queries.txt', '--output=-', f'--vectors={tmp_path}/kept']
    predict.main(flags)
    first = capsys.readouterr()
    assert 'vectors written' in first.err
    model = bert_jax.load(run)
    queries = model.embed_sparse([row[0] for row in SENTENCES], prompt='query').toarray()
    products = queries @ model.embed_sparse(texts, prompt='document').toarray().T
    for line, product in zip(map(json.loads, first.out.splitlines()), products, strict=True):
        best = np.argsort(-product, kind='stable')[:3]
        assert [hit['text'] for hit in line['results']] == [texts[n] for n in best]
        scores = [hit['score'] for hit in line['results']]
        np.testing.assert_allclose(scores, product[best], rtol=1e-5)
    assert sorted(path.name for path in (tmp_path / 'kept').iterdir()) == [
        'manifest.json',
        'vectors.npz',
    ]
    predict.main(flags)
    again = capsys.readouterr()
    assert again.out == first.out
    assert 'vectors' not in again.err
    with pytest.raises(SystemExit):
        predict.main([*flags, '--dimensions=8'])
    assert '--dimensions has no effect' in capsys.readouterr().err


def test_evaluation_scores_a_file(run, tmp_path):
    evaluate.main([f'--model={run}', f'--input={run.parent}/train.jsonl', f'--output={tmp_path}/s'])
    metrics = json.loads((tmp_path / 's/metrics.json').read_text())['metrics']
    texts = [row[1] for row in SENTENCES] + [row[2] for row in SENTENCES]
    model = bert_jax.load(run)
    queries = model.embed_sparse([row[0] for row in SENTENCES], prompt='query').toarray()
    products = queries @ model.embed_sparse(texts, prompt='document').toarray().T
    assert metrics['accuracy'] == np.mean(products.argmax(1) == np.arange(8))
    active = np.count_nonzero(queries, axis=1).mean()
    assert metrics['query_active'] == pytest.approx(active)


def test_bad_settings_are_refused(base, tmp_path):
    with pytest.raises(UserError, match='document_weight is 0'):
        make_task(config_of(base, tmp_path, **{'problem.document_weight': 0.0}))
    config = config_of(base, tmp_path)
    config.init_from, config.data.tokenizer = '', 'train:wordpiece:90'
    with pytest.raises(UserError, match="trains the head 'mlm' further"):
        make_task(config)
    config = config_of(base, tmp_path, **{'data.columns.texts': ('query',)})
    with pytest.raises(UserError, match='1 text, but problem.loss=in_batch needs at least 2'):
        make_task(config)
