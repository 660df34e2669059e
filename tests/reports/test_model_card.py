"""The card of an exported model, which strangers read."""

import pytest

from bert_jax.reports import model_card


@pytest.mark.parametrize(
    ('text', 'shown'),
    [
        ('"init_from": "/home/ann/runs/base",', '"init_from": "…/base",'),
        ('`text:/data/ann/*.txt;language=en`', '`text:…/*.txt;language=en`'),
        ('--config.data.train=~/reviews/train.csv', '--config.data.train=…/train.csv'),
        ('| data | /home/ann/a.csv, ~bob/x/b.csv |', '| data | …/a.csv, …/b.csv |'),
        (
            'gs://bucket/runs/base and https://host/a/b',
            'gs://bucket/runs/base and https://host/a/b',
        ),
        ('12 / 13, and/or, runs/base, 3.1/2', '12 / 13, and/or, runs/base, 3.1/2'),
    ],
)
def test_exported_cards_have_no_folders_of_the_user(text, shown):
    assert model_card._without_folders(text) == shown
