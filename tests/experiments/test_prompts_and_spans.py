"""Counting of the studies bio_spans and cloze_prefix."""

import json

import pytest

from experiments.studies.bio_spans import run as bio_spans
from experiments.studies.cloze_prefix import run as cloze_prefix
from experiments.studies.cloze_prefix import tasks

WORDS = [(0, 3), (4, 7), (8, 11), (12, 15), (16, 19)]
ENTITY = (4, 15, 'PER')  # three words
SPAN_FLAGS = ('--train=t', '--dev=d', '--weights=a/w', '--seeds=2')


@pytest.mark.parametrize(
    ('predicted', 'expected'),
    [
        ([(4, 15, 'PER')], 'right'),
        ([(4, 7, 'PER'), (8, 11, 'ORG'), (12, 15, 'PER')], 'one_word'),  # one wrong tag within
        ([(4, 11, 'PER')], 'one_word'),
        ([(4, 7, 'PER')], 'more_words'),
        ([(4, 19, 'PER')], 'boundary'),
        ([(4, 7, 'PER'), (8, 15, 'PER')], 'boundary'),
        ([(4, 15, 'ORG')], 'missed'),
        ([], 'missed'),
    ],
)
def test_what_became_of_an_entity(predicted, expected):
    assert bio_spans.outcome(ENTITY, WORDS, predicted) == expected


def test_shares_are_of_entities_of_several_words_and_f1_of_all(tmp_path):
    gold = {'a': [ENTITY, (0, 3, 'ORG')], 'b': [(0, 7, 'PER')]}
    predicted = {'a': [(4, 11, 'PER'), (0, 3, 'ORG')], 'b': [(0, 7, 'PER')]}
    found = bio_spans.count({'a': WORDS, 'b': WORDS}, gold, predicted)
    assert (found['one_word'], found['right'], found['entities']) == (50, 50, 2)
    assert found['f1'] == pytest.approx(2 * 2 / 6)


def test_predictions_of_both_heads_are_read(tmp_path):
    (tmp_path / 'dev').mkdir()
    span = {'start': 0, 'end': 3, 'text': 'Ada', 'label': 'PER', 'probability': 0.9}
    word = {'start': 0, 'end': 3, 'text': 'Ada', 'predicted': 'B-PER'}
    records = [{'id': 'x', 'text': 'Ada', 'words': [word], 'entities': [span]}]
    path = tmp_path / 'dev/predictions.jsonl'
    path.write_text('\n'.join(map(json.dumps, records)))
    assert bio_spans.read_words(tmp_path) == {'x': [(0, 3)]}
    assert bio_spans.read_predicted(tmp_path) == {'x': [(0, 3, 'PER')]}
    path.write_text(json.dumps({'id': 'x', 'text': 'Ada', 'gold': [span], 'predicted': [span]}))
    assert bio_spans.read_gold(tmp_path) == bio_spans.read_predicted(tmp_path)


def test_the_study_of_spans_writes_a_row_for_each_head(tmp_path, monkeypatch, capsys):
    entity = {'start': 4, 'end': 15, 'label': 'PER'}
    words = [{'start': start, 'end': end} for start, end in WORDS]
    records = {
        'BIO': {'id': 'x', 'words': words, 'entities': [entity | {'end': 11}]},
        'spans': {'id': 'x', 'gold': [entity], 'predicted': [entity]},
    }

    def train(options, name, seed):
        path = tmp_path / f'{name}_{seed}/dev/predictions.jsonl'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(records[name]))
        return path.parents[1]

    monkeypatch.setattr(bio_spans, 'train', train)
    monkeypatch.setattr('sys.argv', ['run', *SPAN_FLAGS, f'--output={tmp_path}/out'])
    bio_spans.main()
    written = json.loads((tmp_path / 'out/results.json').read_text())
    found = {name: heads['one_word']['values'] for name, heads in written['variants'].items()}
    assert found == {'BIO': [100, 100], 'spans': [0, 0]}
    assert written['settings'] == {
        'steps': 400,
        'rate': 1e-4,
        'weights': 'w',
        'decoding': 'argmax',
    }
    assert '| spans | 1.000 ± 0.000 | 100.0 ± 0.0 |' in (tmp_path / 'out/table.md').read_text()


def test_shots_are_balanced_nested_and_not_tested():
    examples = [tasks.Example(f'{label} {n}', label) for label in 'xyz' for n in range(20)]
    few, many = (tasks.draw(examples, shots, 9, 3) for shots in (4, 16))
    assert many.shots[:4] == few.shots
    assert few.tested == many.tested
    assert [one.label for one in few.shots] == ['x', 'y', 'z', 'x']
    assert len({*many.shots}) == 16
    assert not {*many.shots} & {*many.tested}
    assert {one.label: 3 for one in many.tested} == dict.fromkeys('xyz', 3)
    assert tasks.draw(examples, 4, 9, 4).shots != few.shots


def test_an_answered_cloze_is_a_part_of_a_template():
    task = tasks.TASKS['polarity']
    found = cloze_prefix.answered(task, tasks.Example('a {fine} film', 'positive'))
    assert found == 'a fine film It was good .'
