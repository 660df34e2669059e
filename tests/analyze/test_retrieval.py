"""The analyses retrieval and sts through the command, compared with sentence-transformers."""

import json

import numpy as np
import pytest
import scipy.stats
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import evaluation

from bert_jax.analyze import __main__ as command
from bert_jax.metrics import retrieval
from tests.interop import published
from tests.interop.test_sentence_modules import add_modules, legacy
from tests.labels import beir

PAIRS = [
    ('3.5', 'the ship near the wave', 'the ship near the storm'),
    ('0', 'a cow', 'the moon and the star'),
    ('1', 'the tram', 'the bridge near the tram'),
    ('1', 'milk', 'the hen'),
    ('', 'nobody', 'scored this'),
]


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    bert = published.folder(tmp_path_factory.mktemp('model') / 'bert', 'BertModel')
    return add_modules(bert, legacy('mean'), ['Normalize'])


@pytest.fixture(scope='module')
def reference(folder):
    return SentenceTransformer(str(folder), device='cpu')


def analyze(name, output, **flags):
    command.main([name, f'--output={output}', *(f'--{k}={v}' for k, v in flags.items())])
    return json.loads((output / 'results.json').read_text())


def refuse(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        command.main(list(arguments))
    (line,) = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2
    return line


def test_retrieval_agrees_with_sentence_transformers(folder, reference, tmp_path):
    documents = {
        k: v for k, v in beir.DOCUMENTS.items() if k != 'd10'
    }  # ties are ordered otherwise
    judgments = [(q, d, min(r, 1)) for q, d, r in beir.JUDGMENTS if d != 'd10']
    data = beir.write(tmp_path / 'tiny', documents, judgments=judgments)
    found = analyze('retrieval', tmp_path / 'out', model=folder, input=data)
    relevant = {q: {d for n, d, r in judgments if n == q and r} for q, _, _ in judgments}
    texts = {name: ' '.join(filter(None, parts)) for name, parts in documents.items()}
    evaluator = evaluation.InformationRetrievalEvaluator(
        {q: beir.QUERIES[q] for q in relevant}, texts, relevant, name='x', ndcg_at_k=[3, 10]
    )
    expected = evaluator(reference)
    of_set = found['results']['sets']['tiny']
    for name, ours in (('mrr', 'mrr'), ('ndcg', 'ndcg'), ('recall', 'recall')):
        value = expected[f'x_cosine_{name}@10']
        assert of_set['model']['metrics'][f'{ours}@10'] == pytest.approx(value, abs=1e-6)
    assert of_set['model']['metrics']['accuracy@1'] == expected['x_cosine_accuracy@1']
    assert of_set['queries'] == 4
    assert of_set['bm25']['metrics']['ndcg@10'] > 0.9  # the words of the queries are in the texts
    low, high = of_set['difference']['intervals']['ndcg@10']
    assert low <= of_set['difference']['metrics']['ndcg@10'] <= high
    assert '| tiny |' in (tmp_path / 'out/README.md').read_text()


def test_a_reranker_is_scored_beside_the_model(folder, tmp_path):
    data = beir.write(tmp_path / 'tiny')
    reranker = published.folder(
        tmp_path / 'reranker', 'BertForSequenceClassification', num_labels=1
    )
    flags = dict(model=folder, input=data, reranker=reranker, candidates=2)
    found = analyze('retrieval', tmp_path / 'out', **flags)['results']['sets']['tiny']
    model, reranked = (found[system]['metrics'] for system in ('model', 'reranked'))
    assert reranked['recall@3'] <= model['recall@3']  # it only sees two documents
    assert sum(reranked.values()) != sum(model.values())
    assert '| tiny | 4 | 6 | reranked |' in (tmp_path / 'out/README.md').read_text()


def test_ties_and_grades_are_those_of_trec_eval(folder, reference, tmp_path):
    data = beir.write(tmp_path / 'tiny')
    found = analyze('retrieval', tmp_path / 'out', model=folder, input=data)
    names = sorted(beir.DOCUMENTS)
    texts = [' '.join(filter(None, beir.DOCUMENTS[name])) for name in names]
    queries = ['q1', 'q2', 'q3', 'q4']
    vectors = reference.encode([beir.QUERIES[q] for q in queries]), reference.encode(texts)
    scores_QN = np.round(vectors[0] @ vectors[1].T, 5)  # equal texts have equal scores
    rankings = {
        query: dict(zip(names, row.tolist(), strict=True))
        for query, row in zip(queries, scores_QN, strict=True)
    }
    relevance = {q: {d: r for n, d, r in beir.JUDGMENTS if n == q} for q in queries}
    expected = retrieval.evaluate(rankings, relevance).means()
    assert found['results']['sets']['tiny']['model']['metrics'] == pytest.approx(expected)


def test_documents_with_the_id_of_a_query_need_a_decision(folder, tmp_path, capsys):
    documents = beir.DOCUMENTS | {'q1': ('', beir.QUERIES['q1'])}
    data = beir.write(tmp_path / 'same', documents)
    flags = f'--model={folder}', f'--input={data}', f'--output={tmp_path}/refused'
    line = refuse(capsys, 'retrieval', *flags)
    assert "1 queries have the id of a document, such as 'q1'; set --same_id=drop" in line
    kept, dropped = (
        analyze('retrieval', tmp_path / rule, model=folder, input=data, same_id=rule)
        for rule in ('keep', 'drop')
    )
    first = [found['results']['sets']['same'] for found in (kept, dropped)]
    assert first[0]['bm25']['metrics']['accuracy@1'] < first[1]['bm25']['metrics']['accuracy@1']


def test_bad_test_sets_are_refused_before_the_work(folder, tmp_path, capsys):
    data = beir.write(tmp_path / 'bad', judgments=[('q1', 'd1', 0)])
    flags = f'--model={folder}', f'--output={tmp_path}/out'
    assert 'has no qrels/dev.tsv' in refuse(
        capsys, 'retrieval', *flags, f'--input={data}', '--split=dev'
    )
    assert 'has no judgment above 0' in refuse(capsys, 'retrieval', *flags, f'--input={data}')


def test_sts_agrees_with_scipy_and_counts_rows_without_a_score(folder, reference, tmp_path):
    path = tmp_path / 'pairs.tsv'
    path.write_text(''.join('\t'.join(row) + '\n' for row in PAIRS))
    columns = {'data.columns.label': 0, 'data.columns.text': 1, 'data.columns.text2': 2}
    columns |= {'data.header': False, 'data.skip_labels': "('',)"}
    found = analyze('sts', tmp_path / 'out', model=folder, input=path, **columns)
    scored = [row for row in PAIRS if row[0]]
    gold = [float(row[0]) for row in scored]
    first, second = (reference.encode([row[n] for row in scored]) for n in (1, 2))
    cosines = (first * second).sum(1)
    metrics = found['results']['model']['metrics']
    assert metrics['spearman'] == pytest.approx(scipy.stats.spearmanr(gold, cosines)[0])
    assert metrics['pearson'] == pytest.approx(scipy.stats.pearsonr(gold, cosines)[0], abs=1e-5)
    assert found['results']['pairs'] == 4
    assert any('skipped by label: 1' in note for note in found['notes'])
    assert found['results']['shared_words']['metrics']['spearman'] > 0.5


def test_sts_without_a_correlation_is_refused(folder, tmp_path, capsys):
    path = tmp_path / 'pairs.tsv'
    path.write_text('label\ttext\ttext2\n1\ta\tb\n1\tc\td\n')
    flags = f'--model={folder}', f'--input={path}', f'--output={tmp_path}/out'
    assert 'all pairs have the same score' in refuse(
        capsys, 'sts', *flags, '--data.columns.text2=text2'
    )
    assert 'a row has one text' in refuse(capsys, 'sts', *flags)
