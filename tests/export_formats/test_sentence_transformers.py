"""Folders of sentence-transformers compute the vectors of embed."""

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.inference.predictor import Predictor
from tests.export_formats import exported

library = pytest.importorskip(
    'sentence_transformers', reason='sentence-transformers is not installed'
)


def test_the_library_computes_the_same_vectors(tmp_path):
    model = exported.small_model()
    written = exported.write(tmp_path / 'out', 'sentence_transformers', model, normalize=True)
    assert 'truncates texts to 64 tokens' in written.lines[-1]
    theirs = library.SentenceTransformer(str(tmp_path / 'out'), device='cpu')
    assert theirs.max_seq_length == 64
    vectors = theirs.encode(exported.TEXTS)
    ours = Predictor(model).embed(exported.TEXTS)
    norms = np.linalg.norm(ours, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, ours / norms, atol=1e-5)


def test_other_tasks_are_refused(tmp_path):
    with pytest.raises(UserError, match='has only the task embed, not fill_mask'):
        exported.write(tmp_path, 'sentence_transformers', exported.small_model(), task='fill_mask')
