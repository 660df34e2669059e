"""predict --task=search: texts of any form, kept vectors, and bad input."""

import json
import os
import shutil

import numpy as np
import pytest
import torch
from pyarrow import Table, parquet
from sentence_transformers import CrossEncoder, SentenceTransformer, util

from bert_jax import predict
from bert_jax.inference import vector_search
from tests.interop import published
from tests.interop.test_sentence_modules import add_modules, legacy
from tests.labels import beir

TEXTS = ['the ship near the wave', 'a cow', 'the moon', 'the cow and the barn', 'tram . bridge']
QUERIES = ['the ship', 'milk', 'the moon and a star']


@pytest.fixture(scope='module')
def model(tmp_path_factory):
    bert = published.folder(tmp_path_factory.mktemp('model') / 'bert', 'BertModel')
    return add_modules(bert, legacy('mean'), ['Normalize'])


@pytest.fixture
def inputs(tmp_path):
    (tmp_path / 'queries.txt').write_text('\n'.join(QUERIES) + '\n')
    (tmp_path / 'texts.txt').write_text('\n'.join(TEXTS) + '\n')
    return tmp_path


def search(model, folder, documents='texts.txt', output='out.jsonl', **flags):
    """Run the command; return its records by query."""
    words = {'input': folder / 'queries.txt', 'vectors': folder / 'vectors', 'top': 3} | flags
    predict.main(
        [
            f'--model={model}',
            '--task=search',
            f'--documents={folder / documents}',
            f'--output={folder / output}',
            '--overwrite',
            *(f'--{name}={value}' for name, value in words.items()),
        ]
    )
    return [json.loads(line) for line in (folder / output).read_text().splitlines()]


def refuse(capsys, model, folder, **flags):
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        search(model, folder, **flags)
    (line,) = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2
    return line


def test_the_nearest_are_those_of_sentence_transformers(model, inputs):
    reference = SentenceTransformer(str(model), device='cpu')
    vectors = reference.encode(QUERIES), reference.encode(TEXTS)
    expected = util.semantic_search(*vectors, top_k=3)
    found = search(model, inputs)
    assert [record['query'] for record in found] == QUERIES
    for record, hits in zip(found, expected, strict=True):
        assert [hit['id'] for hit in record['results']] == [
            str(hit['corpus_id'] + 1) for hit in hits
        ]
        assert [hit['text'] for hit in record['results']] == [TEXTS[h['corpus_id']] for h in hits]
        scores = [hit['score'] for hit in record['results']]
        np.testing.assert_allclose(scores, [hit['score'] for hit in hits], atol=1e-6)


def test_vectors_are_used_again_only_for_the_same_model_texts_and_options(
    model, inputs, capsys, monkeypatch
):
    encoded = []
    encode = vector_search.TextEncoder.encode_documents

    def count(self, texts):
        encoded.append(len(texts))
        return encode(self, texts)

    monkeypatch.setattr(vector_search.TextEncoder, 'encode_documents', count)
    first = search(model, inputs)
    assert 'vectors written to' in capsys.readouterr().err
    assert search(model, inputs) == first
    assert 'vectors' not in capsys.readouterr().err
    assert encoded == [5]
    (inputs / 'texts.txt').write_text('\n'.join([*TEXTS[:-1], 'the star and the moon']))
    changed = search(model, inputs)
    assert changed[2]['results'][0]['text'] == 'the star and the moon'
    assert 'computed anew: changed texts' in capsys.readouterr().err
    search(model, inputs, pooling='cls')
    assert 'computed anew: changed options' in capsys.readouterr().err
    search(model, inputs, pooling='cls', max_length=8)
    assert 'computed anew: changed model' in capsys.readouterr().err
    assert encoded == [5] * 4


def test_counts_of_truncated_documents_are_repeated_with_their_vectors(model, inputs, capsys):
    flags = {'max_length': 5, 'long_texts': 'truncate'}
    search(model, inputs, **flags)
    first = [line for line in capsys.readouterr().err.splitlines() if 'texts truncated' in line]
    assert len(first) == 1
    search(model, inputs, **flags)
    assert first[0] in capsys.readouterr().err.splitlines()


def test_by_default_vectors_are_kept_with_the_model(model, inputs):
    found = search(model, inputs, vectors='')
    assert found == search(model, inputs)
    (kept,) = (model / 'vectors').iterdir()
    assert np.load(kept / 'vectors.npy').shape == (5, 20)
    assert SentenceTransformer(str(model), device='cpu')  # the model still opens


def test_damaged_and_foreign_folders_of_vectors_are_refused(model, inputs, capsys):
    search(model, inputs)
    with open(inputs / 'vectors/vectors.npy', 'r+b') as file:
        file.seek(-1, os.SEEK_END)
        file.write(b'\x7f')
    assert 'is damaged; remove' in refuse(capsys, model, inputs)
    (inputs / 'other').mkdir()
    (inputs / 'other/thesis.txt').write_text('do not replace')
    assert 'has no vectors' in refuse(capsys, model, inputs, vectors=inputs / 'other')
    assert (inputs / 'other/thesis.txt').exists()


@pytest.fixture
def forms(inputs):
    """The same texts as a folder of files and as tables."""
    (inputs / 'folder/sub').mkdir(parents=True)
    for number, text in enumerate(TEXTS):
        (inputs / f'folder/{"sub/" * (number % 2)}{number}.txt').write_text(text)
    (inputs / 'folder/picture.png').write_bytes(b'\x89PNG\r\n\x1a\n\x00\x00')
    rows = [{'id': f'r{n}', 'body': text} for n, text in enumerate(TEXTS)]
    (inputs / 'rows.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    (inputs / 'rows.csv').write_text(
        'id,body\n' + ''.join(f'{row["id"]},{row["body"]}\n' for row in rows)
    )
    parquet.write_table(Table.from_pylist(rows), inputs / 'rows.parquet')
    return inputs


def test_texts_come_from_folders_and_tables(model, forms, capsys):
    expected = search(model, forms)
    places = [hit['id'] for hit in expected[0]['results']]
    for name in ('rows.jsonl', 'rows.csv', 'rows.parquet'):
        found = search(model, forms, name, column='body')
        assert [hit['id'] for hit in found[0]['results']] == [f'r{int(n) - 1}' for n in places]
    capsys.readouterr()
    found = search(model, forms, 'folder')
    assert found[0]['results'][0]['text'] == expected[0]['results'][0]['text']
    assert {hit['id'] for record in found for hit in record['results']} <= {
        *(f'{n}.txt' for n in (0, 2, 4)),
        *(f'sub/{n}.txt' for n in (1, 3)),
    }
    assert 'files that are not text: 1' in capsys.readouterr().err
    beir.write(forms / 'beir')
    found = search(model, forms, 'beir')
    assert {hit['id'] for hit in found[1]['results']} <= beir.DOCUMENTS.keys()


def test_text_to_read(model, inputs, capsys):
    flags = [f'--model={model}', '--task=search', f'--documents={inputs}/texts.txt']
    flags += [f'--input={inputs}/queries.txt', '--output=-', '--output_format=text', '--top=1']
    predict.main([*flags, f'--vectors={inputs}/vectors'])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == 'the ship'
    assert lines[1].split()[1] in '12345'
    assert lines[2] == ''


@pytest.mark.parametrize(
    ('name', 'content', 'flags', 'message'),
    [
        ('t.txt', '\n \n', {}, 'has no texts (blank lines: 2'),
        ('t.txt', 'a\n\udcff\n', {}, 'line 2: not valid utf-8; set --encoding'),
        ('t.csv', 'id,body\n1,x\n', {}, "no column 'text'; set --column to one of 'id', 'body'"),
        ('t.jsonl', '{"text": "x"}\n{"text"\n', {}, 't.jsonl:2: the line is not valid JSON'),
        ('t.jsonl', '{"text": ["x"]}\n', {}, "t.jsonl:1: column 'text' is"),
        ('t.csv', 'id,text\n1,x\n1,y\n', {}, "the id '1' occurs twice"),
        ('t.txt', 'a\n', {'pooling': 'tokens'}, 'a search compares one vector for each text'),
        ('t.txt', 'a\n', {'unit': 'word'}, '--unit has no effect with --task=search'),
    ],
)
def test_bad_input_is_one_line(name, content, flags, message, model, inputs, capsys):
    (inputs / name).write_bytes(content.encode('utf-8', 'surrogateescape'))
    assert message in refuse(capsys, model, inputs, documents=name, **flags)


def test_a_search_without_documents_is_refused_before_the_model_is_loaded(inputs, capsys):
    with pytest.raises(SystemExit):
        predict.main(
            ['--model=none', '--task=search', f'--input={inputs}/queries.txt', '--output=-']
        )
    assert '--task=search needs --documents' in capsys.readouterr().err


def test_queries_and_documents_get_their_prompts(model, inputs, tmp_path_factory):
    folder = tmp_path_factory.mktemp('prompts') / 'model'
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns('vectors'))
    prompts = {'prompts': {'query': 'the moon ', 'document': 'a cow '}, 'default_prompt_name': None}
    (folder / 'config_sentence_transformers.json').write_text(json.dumps(prompts))
    reference = SentenceTransformer(str(folder), device='cpu')
    vectors = reference.encode_query(QUERIES), reference.encode_document(TEXTS)
    expected = util.semantic_search(*vectors, top_k=3)
    for record, hits in zip(search(folder, inputs), expected, strict=True):
        scores = [hit['score'] for hit in record['results']]
        np.testing.assert_allclose(scores, [hit['score'] for hit in hits], atol=1e-6)
    for record, hits in zip(search(folder, inputs, dimensions=8), expected, strict=True):
        assert record['results'][0]['score'] != pytest.approx(hits[0]['score'], abs=1e-4)


def test_a_reranker_orders_the_nearest_anew(model, inputs, tmp_path_factory, capsys):
    folder = tmp_path_factory.mktemp('reranker')
    published.folder(folder, 'BertForSequenceClassification', num_labels=1)
    found = search(model, inputs, reranker=folder, candidates=4, top=2)
    nearest = search(model, inputs, top=4)
    theirs = CrossEncoder(str(folder), device='cpu', activation_fn=torch.nn.Identity())
    for record, first in zip(found, nearest, strict=True):
        texts = [hit['text'] for hit in first['results']]
        expected = theirs.rank(record['query'], texts, top_k=2)
        assert [hit['text'] for hit in record['results']] == [
            texts[hit['corpus_id']] for hit in expected
        ]
        scores = [hit['score'] for hit in record['results']]
        np.testing.assert_allclose(scores, [hit['score'] for hit in expected], atol=1e-4)
    bare = published.folder(tmp_path_factory.mktemp('bare') / 'bert', 'BertModel')
    assert 'has no head for rerank' in refuse(capsys, model, inputs, reranker=bare)
    assert '--top=3 is more than --candidates=2' in refuse(
        capsys, model, inputs, reranker=folder, candidates=2
    )
    assert '--candidates needs --reranker or --first_stage' in refuse(
        capsys, model, inputs, candidates=4
    )


def test_what_a_reranker_truncates_is_counted(model, inputs, tmp_path_factory, capsys):
    folder = tmp_path_factory.mktemp('reranker')
    published.folder(folder, 'BertForSequenceClassification', num_labels=1)
    (inputs / 'long.txt').write_text('the ship near the wave ' * 30 + '\na cow\n')
    search(model, inputs, documents='long.txt', reranker=folder, top=2, long_texts='windows')
    warnings = capsys.readouterr().err.splitlines()
    assert [line for line in warnings if 'truncated' in line and 'by the reranker' in line]


def test_a_column_of_what_is_not_a_table_is_refused(model, inputs, capsys):
    line = refuse(capsys, model, inputs, column='body')
    assert '--column=body has no effect' in line
    assert 'is not a table' in line
