"""Which tokens a pretraining run may mask."""

import pytest

from bert_jax.tasks.pretraining import Pretraining
from tests.end_to_end import small


@pytest.mark.parametrize('unknown', [False, True])
def test_whether_unknown_tokens_may_be_masked_is_a_setting(tmp_path, unknown):
    task = Pretraining(small.config(tmp_path, masking__unknown=unknown))
    tokenizer = task.corpus.tokenizer
    chosen = {*tokenizer.special_ids} - {*task.corruption.masking.special_ids}
    assert chosen == ({tokenizer.unk_id} if unknown else set())
