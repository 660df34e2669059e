"""ESM: token dropout, and rotations that were rounded to float16."""

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.interop import huggingface, huggingface_export
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.embeddings import Embeddings
from bert_jax.models.rows import Rows
from tests.interop import published
from tests.parity.agreement import agree_trees

MASK_ID = 4


def test_masks_have_no_vector_and_scale_the_others():
    sizes = dict(vocab_size=10, hidden_size=4, num_layers=1, num_heads=1)
    changes = {'token_dropout.mask_id': MASK_ID}
    architecture = architectures.build('esm2_8m', **sizes).changed(changes)
    embeddings = Embeddings(architecture, Compute())
    ids = np.array([[0, 5, MASK_ID, 6, 1], [0, 5, 6, 1, 1]], np.int32)
    mask = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 0]], np.int32)
    table = np.arange(512, dtype=np.float32).reshape(128, 4)
    given = {'params': {'token': table}}
    found = np.asarray(embeddings.apply(given, Rows(ids, mask)))
    kept = 1 - 0.15 * 0.8  # of the tokens in training
    expected = table[ids] * kept * np.array([4 / 3, 1])[:, None, None] * mask[..., None]
    expected[0, 2] = 0
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize('rounding', ['float32', 'float16'])
def test_the_rotation_of_a_file_is_kept(rounding, tmp_path):
    """Models trained in float16 have frequencies of this precision in their files."""
    made = published.model('EsmForMaskedLM')
    frequencies = made.esm.rotary_embeddings.inv_freq
    frequencies.data = frequencies.to(getattr(published.torch, rounding)).float()
    made.save_pretrained(tmp_path / 'in')
    loaded = huggingface.load(tmp_path / 'in')
    assert loaded.architecture.attention.precision == rounding
    ours = published.ours(loaded)
    agree_trees(ours, published.theirs(made, loaded.architecture))
    _, lines = huggingface_export.save(loaded, tmp_path / 'out')
    assert 'contact_head' in lines[0]
    opened = published.transformers.EsmForMaskedLM.from_pretrained(
        tmp_path / 'out', attn_implementation='eager'
    )
    agree_trees(ours, published.theirs(opened.eval(), loaded.architecture))


def test_another_rotation_is_refused(tmp_path):
    made = published.model('EsmForMaskedLM')
    made.esm.rotary_embeddings.inv_freq.data *= 0.9
    made.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r'inv_freq are not those of rope_theta 10000'):
        huggingface.load(tmp_path)
