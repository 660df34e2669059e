"""Sparse vectors of SparseEncoder folders, compared with sentence-transformers."""

import json

import numpy as np
import pytest
from sentence_transformers import SparseEncoder

import bert_jax
from bert_jax import export, predict
from bert_jax.analyze import __main__ as analyze
from bert_jax.errors import UserError
from tests import rounded
from tests.interop import published
from tests.labels import beir

TEXTS = ['the ship near the wave', 'moon', '', 'a cow near the barn and the milk']
pytestmark = pytest.mark.usefixtures('no_loader_process')


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """A folder as sentence-transformers writes it."""
    path = tmp_path_factory.mktemp('sparse')
    published.folder(path / 'mlm', 'BertForMaskedLM')
    SparseEncoder(str(path / 'mlm'), device='cpu').save_pretrained(str(path / 'splade'))
    return path / 'splade'


def dense(folder, texts=TEXTS, **options):
    return SparseEncoder(str(folder), device='cpu').encode(texts, **options).to_dense().numpy()


def agree(folder, theirs, **options):
    """Assert that the vectors of the texts differ from `theirs` by rounding only."""
    rounded.agree(folder, lambda model: model.embed_sparse(TEXTS, **options).toarray(), theirs)


def change(folder, file, **values):
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def copy(folder, path):
    path.mkdir()
    for file in folder.rglob('*'):
        if file.is_file():
            (path / file.relative_to(folder)).parent.mkdir(exist_ok=True)
            (path / file.relative_to(folder)).write_bytes(file.read_bytes())
    return path


@pytest.mark.parametrize(
    ('settings', 'general'),
    [
        ({}, {}),
        ({'pooling_strategy': 'sum'}, {'max_active_dims': 7}),
        ({'activation_function': 'log1p_relu'}, {'prompts': {'query': 'the ', 'document': ''}}),
    ],
)
def test_weights_are_those_of_sentence_transformers(settings, general, folder, tmp_path):
    made = copy(folder, tmp_path / 'made')
    change(made, '1_SpladePooling/config.json', **settings)
    change(made, 'config_sentence_transformers.json', **general)
    agree(made, dense(made))
    found = bert_jax.load(made).embed_sparse(TEXTS)
    assert found.nnz == np.count_nonzero(dense(made))
    if 'prompts' in general:
        reference = SparseEncoder(str(made), device='cpu').encode_query(TEXTS).to_dense().numpy()
        agree(made, reference, prompt='query')


def test_an_exported_folder_opens_with_the_same_weights(folder, tmp_path):
    change(
        made := copy(folder, tmp_path / 'made'),
        '1_SpladePooling/config.json',
        pooling_strategy='sum',
    )
    export.main([f'--model={made}', f'--output={tmp_path}/out'])
    agree(made, dense(tmp_path / 'out'))
    agree(tmp_path / 'out', dense(made))


def test_terms_can_be_read(folder, tmp_path, capsys):
    (tmp_path / 'in').write_text('\n'.join(TEXTS[:2]) + '\n')
    flags = [f'--model={folder}', '--task=terms', f'--input={tmp_path}/in', '--output=-', '--top=4']
    predict.main(flags)
    records = list(map(json.loads, capsys.readouterr().out.splitlines()))
    vocab = published.vocabulary()
    for record, row in zip(records, dense(folder, TEXTS[:2]), strict=True):
        assert record['active'] == np.count_nonzero(row)
        best = np.argsort(-row)[:4]
        assert [term['token'] for term in record['terms']] == [vocab[n] for n in best]
        weights = [term['weight'] for term in record['terms']]
        np.testing.assert_allclose(weights, row[best], rtol=1e-5)


def test_retrieval_by_terms_is_the_product_of_weights(folder, tmp_path):
    data = beir.write(tmp_path / 'tiny')
    output = tmp_path / 'out'
    analyze.main(
        ['retrieval', f'--model={folder}', f'--input={data}', f'--output={output}', '--sparse']
    )
    results = json.loads((output / 'results.json').read_text())['results']['sets']['tiny']
    names = sorted(beir.DOCUMENTS, reverse=True)
    texts = [' '.join(filter(None, beir.DOCUMENTS[name])) for name in names]
    queries = [beir.QUERIES[name] for name in ('q1', 'q2', 'q3', 'q4')]
    best = (dense(folder, queries) @ dense(folder, texts).T).argmax(1)
    relevant = {(q, d) for q, d, grade in beir.JUDGMENTS if grade > 0}
    hits = [(f'q{n + 1}', names[place]) in relevant for n, place in enumerate(best)]
    assert results['model']['metrics']['accuracy@1'] == np.mean(hits)
    active = np.count_nonzero(dense(folder, texts)) / len(texts)
    assert results['terms']['document'] == pytest.approx(active)


def test_a_model_without_predictions_and_unknown_settings_are_refused(folder, tmp_path, capsys):
    bare = bert_jax.load(published.folder(tmp_path / 'bare', 'BertModel'))
    with pytest.raises(UserError, match='has no head for fill_mask'):
        bare.embed_sparse(['x'])
    made = copy(folder, tmp_path / 'made')
    change(made, '1_SpladePooling/config.json', pooling_strategy='mean')
    with pytest.raises(UserError, match="unknown pooling_strategy .*'mean'"):
        bert_jax.load(made)
    flags = [f'--model={folder}', f'--input={tmp_path}', f'--output={tmp_path}/out', '--sparse']
    with pytest.raises(SystemExit):
        analyze.main(['retrieval', *flags, '--pooling=cls'])
    assert '--pooling has no effect with --sparse' in capsys.readouterr().err
