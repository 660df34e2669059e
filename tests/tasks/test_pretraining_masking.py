"""Which tokens a pretraining run may mask."""

import jax
import pytest

from bert_jax.errors import UserError
from bert_jax.models.rows import Rows
from bert_jax.tasks.pretraining import builder
from bert_jax.tasks.pretraining.stage_settings import (
    StageSettings,
    check_masking_rate,
    stage_settings,
)
from configs import albert, base, deberta, electra, modernbert, roberta, spanbert, xlmr
from tests.end_to_end import small


@pytest.mark.parametrize('unknown', [False, True])
def test_whether_unknown_tokens_may_be_masked_is_a_setting(tmp_path, unknown):
    task = builder.build(small.config(tmp_path, masking__unknown=unknown))
    tokenizer = task.corpus.tokenizer
    chosen = {*tokenizer.special_ids} - {*task.corruption.vocabulary.special_ids}
    assert chosen == ({tokenizer.unk_id} if unknown else set())


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'masking__rate': 0.4, 'training__sequence_length': (32,)}, '12.8 of 32 .*5 in stage 1'),
        ({'training__sequence_length': (32, 128)}, '19.2 of 128 .* allows 5 in stage 2.* to 20 '),
    ],
)
def test_a_rate_that_max_predictions_would_lower_is_refused_in_every_stage(
    tmp_path, changes, message
):
    """A rate of 0.4 masked 16.7 % and one of 0.15 masked 4.8 %, without a word."""
    training = {'training__max_predictions': (5,), 'model__max_position_embeddings': 128}
    with pytest.raises(UserError, match=message):
        builder.build(small.config(tmp_path, **training | changes))


def test_a_rate_is_reached_where_max_predictions_leave_room_for_it(tmp_path):
    changes = {'masking__rate': 0.5, 'training__max_predictions': (8,)}
    task = builder.build(small.config(tmp_path, **small.ONE_STAGE | changes))
    clean = Rows.of(task.stages[0].source.batch(0))
    masked = task.corruption(jax.random.split(jax.random.key(0), 16), clean)
    share = masked.targets.weights_BP.sum() / clean.attention_mask_BT.sum()
    assert share == pytest.approx(0.5, abs=0.02)


def test_published_pairs_of_length_and_predictions_leave_room_for_their_rate():
    configs = [module.get_config() for module in (albert, base, modernbert, roberta, spanbert)]
    configs += [deberta.get_config(), xlmr.get_config(), modernbert.get_config('extension')]
    configs += [electra.get_config(size) for size in electra.SIZES]
    for config in configs:
        check_masking_rate(stage_settings(config.training), config.masking.rate)
    with pytest.raises(UserError, match='76.8 of 512 .* to 77 or'):
        check_masking_rate([StageSettings(1, 512, 1, 1, max_predictions=75)], 0.15)
