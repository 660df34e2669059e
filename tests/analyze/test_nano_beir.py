"""NanoBEIR from its Parquet files: the numbers of sentence-transformers, and bad folders."""

import pytest
from pyarrow import Table, parquet
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import evaluation

from tests.analyze.test_retrieval import analyze, refuse
from tests.interop import published
from tests.interop.test_sentence_modules import add_modules, legacy
from tests.labels import nano


@pytest.fixture(scope='module')
def model(tmp_path_factory):
    bert = published.folder(tmp_path_factory.mktemp('model') / 'bert', 'BertModel')
    return add_modules(bert, legacy('mean'), ['Normalize'])


class FromFolder(evaluation.NanoBEIREvaluator):
    """The evaluator of sentence-transformers on a folder instead of a name of the Hub."""

    def _load_dataset_subset_split(self, subset, split, required_columns):
        path = f'{self.dataset_id}/{subset}/{split}-00000-of-00001.parquet'
        return parquet.read_table(path).to_pylist()


def expected_of(theirs, folder):
    evaluator = FromFolder(['nq', 'scifact'], dataset_id=str(folder), show_progress_bar=False)
    return evaluator(theirs)


def test_numbers_are_those_of_sentence_transformers(model, tmp_path):
    folder = nano.write(tmp_path / 'NanoBEIR-en')
    expected = expected_of(SentenceTransformer(str(model), device='cpu'), folder)
    found = analyze('retrieval', tmp_path / 'out', model=model, input=folder)['results']
    for name in ('NanoNQ', 'NanoSciFact'):
        metrics = found['sets'][name]['model']['metrics']
        for ours, theirs in (('ndcg@10', 'ndcg@10'), ('mrr@10', 'mrr@10')):
            wanted = expected[f'{name}_cosine_{theirs}']
            assert metrics[ours] == pytest.approx(wanted, abs=1e-6)
        assert metrics['ndcg@10'] < 1
    mean = expected['NanoBEIR_mean_cosine_ndcg@10']
    assert found['mean_ndcg@10']['model'] == pytest.approx(mean, abs=1e-6)
    report = (tmp_path / 'out/README.md').read_text()
    assert '| NanoNQ | 6 | 30 | BM25 |' in report
    assert f'| mean |  |  | model | {found["mean_ndcg@10"]["model"]:.4g}' in report


def test_folders_that_are_not_complete_are_refused(model, tmp_path, capsys):
    folder = nano.write(tmp_path / 'nano')
    flags = 'retrieval', f'--model={model}', f'--input={folder}', f'--output={tmp_path}/out'
    (folder / 'qrels/NanoNQ-00000-of-00001.parquet').unlink()
    assert 'corpus/ and qrels/ have different sets: NanoNQ' in refuse(capsys, *flags)
    path = folder / 'qrels/NanoNQ-00000-of-00001.parquet'
    parquet.write_table(Table.from_pylist([{'query-id': 'q1', 'corpus-id': 'd99'}]), path)
    assert "a judgment of 'q1' and 'd99', one of which does not exist" in refuse(capsys, *flags)
    parquet.write_table(Table.from_pylist([{'query': 'q1', 'corpus-id': 'd1'}]), path)
    assert 'lacks the column query-id; it has query, corpus-id' in refuse(capsys, *flags)
