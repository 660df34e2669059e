"""The default learning rate of fine-tuning follows the width of the model."""

import dataclasses

import pytest

from bert_jax.models import architectures, tuning
from bert_jax.tasks.finetuning import learning_rate
from configs import finetune


def choose(width, config=None, **changes):
    architecture = architectures.build('bert', vocab_size=10, hidden_size=width, num_heads=2)
    architecture = dataclasses.replace(architecture, **changes)
    return learning_rate.choose(config or finetune.get_config('file'), architecture)[0]


@pytest.mark.parametrize(
    ('width', 'rate'),
    [(1024, 2e-5), (768, 2e-5), (384, 8e-5), (256, 1.8e-4), (128, 7.2e-4), (64, 1e-3)],
)
def test_models_as_wide_as_bert_base_keep_the_published_rate(width, rate):
    assert choose(width) == pytest.approx(rate)


def test_a_rate_that_is_set_is_used_as_it_is():
    config = finetune.get_config('file')
    config.schedule.learning_rate = 3e-3
    assert choose(128, config) == 3e-3


def test_a_tuning_method_has_the_rate_of_its_authors():
    assert choose(128, tuning=tuning.build('lora', {})) == 5e-4  # Hu et al. 2021, GLUE
    assert choose(768, tuning=tuning.build('bitfit', {})) == 1e-3
