"""Vectors are compared as the folder, the run or the caller says: by cosine or by dot product."""

import json

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer, SparseEncoder

import bert_jax
from bert_jax import export, main, predict
from bert_jax.errors import UserError
from bert_jax.inference.sparse_vectors import TermEncoder
from bert_jax.inference.vector_search import TextEncoder
from bert_jax.interop import huggingface_export, loading
from bert_jax.loaded import sentence_modules
from bert_jax.loaded.record import Usage
from bert_jax.tasks import make_task
from tests.interop import published
from tests.interop.test_sentence_modules import add_modules
from tests.problems.embedding.small import config_of, rows

DOCUMENTS = ['the ship near the wave', 'a cow', 'the moon and the ship', 'ship', 'a a a a']
QUERIES = ['the ship', 'moon']
POOLING = {'pooling_mode_mean_tokens': True, 'word_embedding_dimension': 20}


@pytest.fixture(scope='module')
def dot_folder(tmp_path_factory):
    folder = published.folder(tmp_path_factory.mktemp('dot') / 'bert', 'BertModel')
    return add_modules(folder, POOLING, general={'similarity_fn_name': 'dot'})


def products(folder):
    model = SentenceTransformer(str(folder), device='cpu')
    return model.similarity(model.encode(QUERIES), model.encode(DOCUMENTS)).numpy()


def test_search_and_mining_compare_as_the_folder_says(dot_folder, tmp_path, capsys):
    (tmp_path / 'texts.txt').write_text('\n'.join(DOCUMENTS) + '\n')
    (tmp_path / 'queries.txt').write_text('\n'.join(QUERIES) + '\n')
    (tmp_path / 'answers.txt').write_text('\n'.join(f'{query}\tship' for query in QUERIES) + '\n')
    common = [f'--model={dot_folder}', f'--documents={tmp_path}/texts.txt', '--output=-']
    vectors = f'--vectors={tmp_path}/vectors'
    predict.main([*common, vectors, '--task=search', f'--input={tmp_path}/queries.txt', '--top=5'])
    found = [json.loads(line)['results'] for line in capsys.readouterr().out.splitlines()]
    expected_QN = products(dot_folder)
    for results, row_N in zip(found, expected_QN, strict=True):
        assert [int(one['id']) - 1 for one in results] == np.argsort(-row_N).tolist()
        np.testing.assert_allclose(
            [one['score'] for one in results], np.sort(row_N)[::-1], rtol=1e-4, atol=1e-4
        )
    predict.main([*common, vectors, '--task=mine', f'--input={tmp_path}/answers.txt'])
    mined = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    own = [one['scores'][0] for one in mined]
    np.testing.assert_allclose(own, expected_QN[:, 3], rtol=1e-4, atol=1e-4)


def test_the_caller_and_another_pooling_override_the_folder(dot_folder):
    model = bert_jax.load(dot_folder)
    compared = {
        name: TextEncoder(model, *options).compared_by
        for name, options in {
            'folder': (),
            'caller': ('cosine',),
            'pooling': (None, 'cls'),
            'both': ('dot', 'cls'),
        }.items()
    }
    assert compared == {'folder': 'dot', 'caller': 'cosine', 'pooling': 'cosine', 'both': 'dot'}


def test_an_exported_folder_keeps_the_similarity(dot_folder, tmp_path):
    huggingface_export.save(loading.load_any(dot_folder), tmp_path / 'out')
    np.testing.assert_allclose(products(tmp_path / 'out'), products(dot_folder), rtol=1e-4)


@pytest.mark.parametrize(
    ('name', 'message'),
    [
        ('euclidean', "compares vectors by 'euclidean', which is not supported; set --similarity"),
        ('dott', "unknown similarity_fn_name in .* 'dott'; did you mean dot"),
    ],
)
def test_other_similarities_are_refused_in_a_line(dot_folder, tmp_path, name, message):
    for file in dot_folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / 'config_sentence_transformers.json').unlink()
    add = json.dumps({'similarity_fn_name': name})
    (tmp_path / 'config_sentence_transformers.json').write_text(add)
    with pytest.raises(UserError, match=message):
        TextEncoder(bert_jax.load(tmp_path))


@pytest.mark.parametrize(
    ('keys', 'similarity', 'is_unit'),
    [
        ({'problem__similarity': 'dot'}, 'dot', False),
        ({'problem__similarity': 'dot', 'problem__normalize': True}, 'dot', True),
        ({'problem__similarity': 'dot', 'problem__dimensions': (32, 8)}, 'cosine', True),
        ({'problem__loss': 'margin_mse', 'data__columns__scores': ('s1', 's2')}, 'dot', False),
        ({}, 'cosine', True),
    ],
)
def test_vectors_of_a_run_are_compared_as_in_its_training(tmp_path, keys, similarity, is_unit):
    lines = [['text1', 'text2', 'text3', 's1', 's2'], *([*row, '2', '1'] for row in rows(9, 3))]
    config = config_of(tmp_path, lines, **keys)
    kept = make_task(config).problem.setup.kept
    usage = Usage(task='embedding', config=config.to_dict(), kept=kept)
    modules = sentence_modules.of_run(usage)
    assert (modules.similarity, bool(modules.layers)) == (similarity, is_unit)


@pytest.mark.slow
def test_a_run_with_dot_products_is_scored_searched_and_exported_with_them(tmp_path):
    lines = [['text1', 'text2'], *rows(12, 2)]
    keys = {'problem__similarity': 'dot', 'data__dev_fraction': 0.25, 'training__steps': 1}
    main.run(config_of(tmp_path, lines, **keys))
    model = bert_jax.load(tmp_path / 'run')
    assert TextEncoder(model).compared_by == 'dot'
    first = json.loads((tmp_path / 'run/dev/predictions.jsonl').read_text().splitlines()[0])
    own_2D = model.embed(first['texts'])
    assert first['products'] == pytest.approx([float(own_2D[0] @ own_2D[1])], rel=1e-4)
    export.main(
        [f'--model={tmp_path}/run', f'--output={tmp_path}/out', '--format=sentence_transformers']
    )
    np.testing.assert_allclose(
        TextEncoder(model).encode(QUERIES) @ TextEncoder(model).encode(DOCUMENTS).T,
        products(tmp_path / 'out'),
        rtol=1e-4,
    )


def test_a_run_that_compares_other_than_its_start_says_so(dot_folder, tmp_path, capsys):
    config = config_of(tmp_path, [['text1', 'text2'], *rows(9, 2)], sizes={}, dropout=None)
    config.data.tokenizer, config.init_from = '', str(dot_folder)
    make_task(config)
    warnings = capsys.readouterr().err
    assert "init_from compares vectors by 'dot', but this run trains with 'cosine'" in warnings


@pytest.mark.parametrize('similarity', [None, 'cosine'])
def test_sparse_vectors_are_compared_as_the_folder_says(tmp_path, similarity):
    folder = published.folder(tmp_path / 'bert', 'BertForMaskedLM')
    SparseEncoder(str(folder), device='cpu').save_pretrained(str(folder))
    path = folder / 'config_sentence_transformers.json'
    settings = json.loads(path.read_text()) | {'similarity_fn_name': similarity}
    path.write_text(json.dumps(settings))
    theirs = SparseEncoder(str(folder), device='cpu')
    expected_QN = theirs.similarity(theirs.encode(QUERIES), theirs.encode(DOCUMENTS))
    encoder = TermEncoder(bert_jax.load(folder))
    queries, documents = encoder.encode_queries(QUERIES), encoder.encode_documents(DOCUMENTS)
    found_QN = (queries @ documents.T).toarray()
    np.testing.assert_allclose(found_QN, expected_QN.to_dense().numpy(), rtol=1e-4, atol=1e-5)
    huggingface_export.save(loading.load_any(folder), tmp_path / 'out')
    written = json.loads((tmp_path / 'out/config_sentence_transformers.json').read_text())
    assert written['similarity_fn_name'] == (similarity or 'dot')
