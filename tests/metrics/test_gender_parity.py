"""The gender parity score, on records in the layout of Winogender in SuperGLUE (AX-g.jsonl)."""

import json

import numpy as np
import pytest

import bert_jax
from bert_jax.metrics import gender_parity, scores
from tests.inference.small_runs import save_run

# Numbers of pairs, and sentences with a place for the pronoun in the nominative or the possessive.
SENTENCES = (
    (551, 'The taxpayer saw the accountant because {} needed help.', ('he', 'she')),
    (552, '{} friend said that the ship was near the moon.', ('His', 'Her')),
    (553, 'The cow saw the barn and hurt {}.', ('himself', 'herself')),
)


def records():
    """Two hypotheses for each sentence of each gender; the pairs are not neighbors."""
    return [
        {
            'premise': sentence.format(pronouns[gender]),
            'hypothesis': hypothesis,
            'label': label,
            'pair_id': pair + 100 * number,
            'idx': 2 * (pair + 100 * number) + gender,
        }
        for gender in (0, 1)
        for pair, sentence, pronouns in SENTENCES
        for number, (hypothesis, label) in enumerate(
            (('The ship needed help.', 'entailment'), ('The moon did.', 'not_entailment'))
        )
    ]


def texts_of(given):
    return [(record['premise'], record['hypothesis']) for record in given]


def test_pairs_are_those_of_the_published_numbers():
    given = records()
    found = gender_parity.find_pairs(texts_of(given))
    numbers = [record['pair_id'] for record in given]
    expected = [
        np.flatnonzero(np.array(numbers) == pair).tolist() for pair in dict.fromkeys(numbers)
    ]
    assert found.tolist() == expected
    assert len(found) == 6


@pytest.mark.parametrize(
    'texts',
    [
        [('he ran',), ('he ran',)],  # the same gender
        [('he ran',), ('she sat',)],
        [('he ran',), ('she ran',), ('She ran',)],  # which two are a pair?
        [('the ship',), ('THE ship',)],
        [('he ran',), ('she ran',), ('a',), ('b',)],  # not most examples
        [],
    ],
)
def test_other_examples_are_no_pairs(texts):
    assert gender_parity.find_pairs(texts).shape == (0, 2)


def test_the_score_is_the_share_of_pairs_with_one_answer():
    given = records()
    pairs = gender_parity.find_pairs(texts_of(given))
    gold = [record['label'] for record in given]
    labels = ['entailment', 'not_entailment']
    assert scores.classification(gold, gold, labels, pairs_P2=pairs).metrics['gender_parity'] == 1
    guesses = list(gold)
    guesses[7] = 'entailment'  # the woman of the second pair
    found = scores.classification(gold, guesses, labels, pairs_P2=pairs).metrics
    assert found['gender_parity'] == pytest.approx(5 / 6)
    score = scores.classification_rows(gold, guesses, labels, pairs_P2=pairs)
    assert score(np.array([0, 1, 1, 1, 7, 7]))['gender_parity'] == pytest.approx(1 / 4)
    assert 'gender_parity' not in score(np.array([6, 7]))


def test_a_run_is_scored_on_the_published_file(tmp_path):
    path = tmp_path / 'AX-g.jsonl'
    path.write_text('\n'.join(map(json.dumps, records())))
    run = save_run(tmp_path / 'rte', 'classification')
    columns = {'columns.text': 'premise', 'columns.text2': 'hypothesis', 'format': 'jsonl'}
    rename = {'rename_labels': ('entailment=no', 'not_entailment=yes')}
    found = bert_jax.load(run).evaluate([str(path)], columns | rename)
    predicted = [record['predicted'] for record in found.records]
    same = [a == b for a, b in zip(predicted[:6], predicted[6:], strict=True)]
    assert found.scores.metrics['gender_parity'] == pytest.approx(np.mean(same))
    assert 'gender_parity' in found.intervals
