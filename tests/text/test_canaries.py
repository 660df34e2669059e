"""Canaries: distinct, reproducible, planted in the training text only."""

import json
from collections import Counter

import numpy as np
import pytest

from bert_jax.corpus import preparation
from bert_jax.corpus.corpus_text import CorpusText
from bert_jax.errors import UserError
from bert_jax.text import canaries
from bert_jax.text.sources import open_source
from tests.end_to_end import small


def test_canaries_are_distinct_and_reproducible():
    found = canaries.make(30, seed=1)
    assert found == canaries.make(30, seed=1) != canaries.make(30, seed=2)
    assert len({canary.prefix for canary in found}) == len(found) == 120
    assert Counter(canary.copies for canary in found) == dict.fromkeys((0, 1, 10, 100), 30)
    canary = found[0]
    assert canary.text()[slice(*canary.span())] == canary.secret
    secrets = list(canaries.other_secrets(canary, 500))
    assert len({canary.secret, *secrets}) == 501
    assert secrets == list(canaries.other_secrets(canary, 500))
    assert secrets[:5] != list(canaries.other_secrets(found[1], 5))


def test_every_copy_is_planted_in_the_training_text_alone(tmp_path):
    source, settings = small.write_text(tmp_path), {'tokenizer': 'train:wordpiece:200'}
    plain = preparation.prepare([source], output=tmp_path / 'plain', workers=0, **settings)
    made = preparation.prepare(
        [source], output=tmp_path / 'made', workers=0, canaries=2, **settings
    )
    assert made.split('held_out').num_sentences == plain.split('held_out').num_sentences
    assert {*'0123456789'} <= {*made.tokenizer.vocab}  # the plain text has no digits
    assert '7' not in plain.tokenizer.vocab
    assert made.split('train').num_documents == plain.split('train').num_documents + 222
    text = CorpusText(made.split('train'))
    found = Counter()
    for first, last in zip(text.first_token[:-1], text.first_token[1:], strict=True):
        ids = np.zeros(last - first, np.int64)
        text.copy(ids, np.array([0]), np.array([first]), np.array([last - first]))
        found[tuple(ids.tolist())] += 1
    for canary in canaries.make(2):
        (ids,) = made.tokenizer.encode_batch([canary.text()]).ids
        assert found[tuple(ids.tolist())] == canary.copies
    assert 'canaries:2;language=und' in (tmp_path / 'made/DATASHEET.md').read_text()


def test_the_datasheet_counts_personal_data_by_source(tmp_path):
    (tmp_path / 'a.txt').write_text('Write to a@b.org or c@d.net .\n\nA cow and a barn .')
    (tmp_path / 'b.txt').write_text('A ship .\n\nCall +49 30 901820 , the moon .')
    specs = [f'text:{tmp_path}/{name}.txt;documents=blank_line' for name in 'ab']
    made = preparation.prepare(
        specs, 'train:wordpiece:100', tmp_path / 'made', workers=1, held_out_fraction=0.5
    )
    reports = [source['report'] for source in made.manifest['sources']]
    assert [own.get('mail addresses', 0) for own in reports] == [2, 0]
    sheet = (tmp_path / 'made/DATASHEET.md').read_text()
    assert '| 1 | 2 | 0 | 0 | 0 | 0 |' in sheet
    assert '| 2 | 0 | 1 | 0 | 0 | 0 |' in sheet
    assert 'mail addresses: 2' not in sheet  # in the table only
    assert json.dumps(reports[1])


@pytest.mark.parametrize('spec', ['canaries:0', 'canaries:x', 'canaries:2;seed=-1'])
def test_what_is_no_number_of_canaries_is_refused(spec):
    with pytest.raises(UserError, match='NUMBER must be an integer above 0'):
        open_source(spec)
