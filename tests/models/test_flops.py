"""Operation counts against hand calculation."""

import pytest

from bert_jax.models import architectures
from bert_jax.models.flops import training_flops_per_token


@pytest.mark.parametrize(
    ('name', 'length', 'predictions', 'gigaflops'),
    [
        ('bert_base', 128, 20, 0.546),
        ('bert_base', 512, 76, 0.588),
        ('bert_large', 128, 20, 1.880),
        ('bert_large', 512, 76, 1.992),
        ('modernbert_base', 1024, 307, 0.825),
        ('deberta_v3_base', 512, 76, 0.711),
        ('deberta_v2_xlarge', 128, 20, 4.475),
    ],
)
def test_flops_of_published_sizes(name, length, predictions, gigaflops):
    flops = training_flops_per_token(architectures.build(name), length, predictions)
    assert round(flops / 1e9, 3) == gigaflops
