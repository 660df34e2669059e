"""The table of smaller vectors: memory, recall, and refusals."""

import pytest

from tests.analyze.test_nano_beir import model  # noqa: F401
from tests.analyze.test_retrieval import analyze, refuse
from tests.labels import nano


def test_memory_falls_and_all_candidates_give_the_full_recall(model, tmp_path):  # noqa: F811
    folder = nano.write(tmp_path / 'nano', documents=30)
    flags = dict(model=model, input=folder, dimensions=8)
    found = analyze('vector_sizes', tmp_path / 'out', **flags, rescored=3)['results']['rows']
    by_size = {(row['dimensions'], row['precision']): row for row in found}
    assert len(by_size) == 6
    full = max(size for size, _ in by_size)
    whole = by_size[full, 'float32']
    assert (whole['memory'], whole['recall@10'], whole['bytes']) == (1, 1, 4 * full)
    for precision, size in (('int8', full + 4), ('binary', -(-full // 8))):
        row = by_size[full, precision]
        assert row['bytes'] == size
        assert row['recall@10'] == 1  # all 30 documents are candidates
        assert row['ndcg@10'] == pytest.approx(whole['ndcg@10'])
    assert by_size[8, 'float32']['memory'] == 8 / full
    assert by_size[8, 'float32']['recall@10'] < 1
    reference = analyze('retrieval', tmp_path / 'retrieval', model=model, input=folder)
    mean = reference['results']['mean_ndcg@10']['model']
    assert whole['ndcg@10'] == pytest.approx(mean)


def test_models_of_other_vectors_are_refused(tmp_path, capsys):
    folders = pytest.importorskip('tests.problems.late_interaction.folders')
    late = folders.sentence_transformers(tmp_path / 'late/model')
    data = nano.write(tmp_path / 'nano')
    capsys.readouterr()
    flags = f'--model={late}', f'--input={data}', f'--output={tmp_path}/out'
    assert 'does not make one dense vector' in refuse(capsys, 'vector_sizes', *flags)
