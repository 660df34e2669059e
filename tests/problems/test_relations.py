"""Relations: marked tokens, truncation around marks, exclusive alternatives."""

import itertools
import os
import pathlib
import random

import numpy as np
import pytest

from bert_jax import problems, tokenizers
from bert_jax.errors import UserError
from bert_jax.labels.data_keys import make_config
from bert_jax.labels.examples import Mark, MarkedExample
from bert_jax.problems.base import Calibration
from bert_jax.problems.relations import RELATIONS, nearest
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from tests.tasks import small_problems

LINE = 'the old cat sat on a green mat near the unbelievably big dog of Smith and sons'
KINDS = {'wordpiece': 60, 'bytebpe': 290, 'unigram': 50}
SETTINGS = dict(
    metrics=('accuracy',),
    positive='',
    negative='',
    class_weights='none',
    label_smoothing=0.0,
    exclusive=False,
)
GAP = pathlib.Path(os.environ.get('BERT_JAX_TEST_DATA', 'missing')) / 'gap_coreference'


def make(kind='wordpiece', max_length=64, labels=('FALSE', 'TRUE'), **settings):
    tokenizer = tokenizers.train(f'{kind}:{KINDS[kind]}', [LINE] * 20, True)
    layout = SpecialTokenLayout(tokenizer, max_length, 2)
    return small_problems.problem_of(RELATIONS, SETTINGS | settings, layout, labels)


def example(rng, num_texts, words=14):
    """Random texts with random marks, which may touch and overlap."""
    texts = tuple(' '.join(rng.choices(LINE.split(), k=words)) for _ in range(num_texts))
    marks = []
    for text in (0, num_texts - 1):
        start = rng.randrange(len(texts[text]))
        while texts[text][start] == ' ':
            start += 1
        end = min(start + rng.randint(1, 9), len(texts[text]))
        marks.append(Mark(text, start, end))
    return MarkedExample('x', texts, tuple(marks), 'TRUE')


@pytest.mark.parametrize('num_texts', [1, 2])
@pytest.mark.parametrize('kind', KINDS)
def test_marks_are_on_the_tokens_that_share_a_character(kind, num_texts):
    problem, rng = make(kind, 512), random.Random(0)
    for _ in range(40):
        one = example(rng, num_texts)
        (((sequence,),),) = [problem.encoding.encode(one)]
        encoded = problem.encoding.tokenizer.encode_batch(one.texts)
        expected = []
        for number, offsets in enumerate(encoded.offsets):
            expected.append(0)
            for start, end in offsets:
                bits = 0
                for bit, mark in zip((1, 2), one.marks, strict=True):
                    shared = set(range(start, end)) & set(range(mark.start, mark.end))
                    inside = mark.start < start == end < mark.end  # an empty token inside a mark
                    bits += bit * (mark.text == number and (bool(shared) or inside))
                expected.append(bits)
        assert sequence.tokens['marks'].tolist() == [*expected, 0]
        assert len(sequence.ids) == len(sequence.token_type_ids) == len(expected) + 1
        assert sequence.values['label'] == 2
    assert not +problem.setup.counts


def test_the_nearest_tokens_are_kept():
    rng = np.random.default_rng(0)
    for _ in range(50):
        marked = [rng.random(rng.integers(1, 12)) < 0.3 for _ in range(rng.integers(1, 3))]
        room = int(rng.integers(1, 20))
        kept = nearest(marked, room)
        ranked = []
        for text, own in enumerate(marked):
            for t in range(len(own)):
                away = min((abs(t - u) for u in np.flatnonzero(own)), default=1000)
                ranked.append((away, text, t))
        expected = sorted(ranked)[:room]
        assert [(text, t) for text, own in enumerate(kept) for t in own] == sorted(
            (text, t) for _, text, t in expected
        )


def test_long_texts_keep_their_marks():
    problem = make(max_length=32)
    text = ' '.join(['a'] * 60)
    far = MarkedExample('far', (text,), (Mark(0, 20, 21), Mark(0, 100, 101)), None)
    near = far._replace(marks=(Mark(0, 60, 61), Mark(0, 64, 65)))
    for one, between in ((near, 0), (far, 1)):
        (((sequence,),),) = [problem.encoding.encode(one)]
        assert len(sequence.ids) == 32
        assert sorted(sequence.tokens['marks'])[-2:] == [1, 2]
        assert sequence.values['label'] == 0
        assert problem.setup.counts['texts with tokens removed between their marks'] == between
    assert problem.setup.counts['texts truncated around their marks'] == 2
    assert problem.setup.counts['truncated marks'] == 0
    problem.encoding.encode(far._replace(marks=(Mark(0, 0, 100), Mark(0, 100, 101))))
    assert (
        problem.setup.counts['truncated marks']
        == problem.setup.counts['marks without a token']
        == 1
    )
    two = MarkedExample('two', (text, 'a ' * 5), (Mark(0, 90, 91), Mark(1, 2, 3)), None)
    (((sequence,),),) = [problem.encoding.encode(two)]
    assert len(sequence.ids) == 32
    marked = sequence.tokens['marks']
    assert sequence.token_type_ids[marked > 0].tolist() == [0, 1]
    assert marked[marked > 0].tolist() == [1, 2]
    problem.encoding.encode(
        two._replace(texts=('a', 'a\x00a'), marks=(Mark(0, 0, 1), Mark(1, 1, 2)))
    )
    assert problem.setup.counts['marks without a token'] == 2


def test_alternatives_are_not_both_chosen():
    problem = make(exclusive=True, positive='TRUE', metrics=('f1',))
    texts, pronoun = ('the cat',), Mark(0, 0, 3)
    pairs = [MarkedExample(str(n), texts, (pronoun, Mark(0, n, 7)), 'TRUE') for n in (4, 5)]
    other = pairs[0]._replace(id='other', marks=(Mark(0, 1, 3), Mark(0, 4, 7)), label='FALSE')
    examples = [*pairs, other]

    def revise(*shares):
        predictions = [{'FALSE': 1 - share, 'TRUE': share} for share in shares]
        found = problem.decoder.postprocess(examples, predictions)
        assert problem.decoder.postprocess(examples, found) == found
        for before, after in zip(predictions, found, strict=True):
            assert after == before or after == {'FALSE': 1.0, 'TRUE': 0.0}
        return [own['TRUE'] > 0.5 for own in found], problem.decoder.score(examples, found).metrics

    assert revise(0.8, 0.9, 0.7)[0] == [False, True, True]
    assert revise(0.9, 0.8, 0.2)[0] == [True, False, False]
    assert revise(0.4, 0.3, 0.2)[0] == [False, False, False]
    metrics = revise(0.8, 0.9, 0.2)[1]
    assert next(iter(metrics)) == 'f1'
    assert metrics['f1'] == pytest.approx(2 / 3)
    free = make(exclusive=False)
    predictions = [{'FALSE': 0.1, 'TRUE': 0.9}] * 3
    assert free.decoder.postprocess(examples, predictions) == predictions


def test_records_and_raw_input():
    problem = make()
    given = {'text': 'the old cat', 'marks': [[0, 3], [8, 11]]}
    one = problem.encoding.parse_input('line 1', given)
    assert one.marks == (Mark(0, 0, 3), Mark(0, 8, 11))
    two = problem.encoding.parse_input('line 2', given | {'text2': 'a green mat'})
    assert two.marks == (Mark(0, 0, 3), Mark(1, 8, 11))
    record = problem.decoder.to_record(two, {'FALSE': 0.25, 'TRUE': 0.75})
    assert record['predicted'] == 'TRUE'
    assert [mark['marked'] for mark in record['marks']] == ['the', 'mat']


def test_mistakes_are_reported():
    problem = make()
    for given in ({'text': 'a'}, {'marks': []}):
        with pytest.raises(UserError, match='line 1: key '):
            problem.encoding.parse_input('line 1', given)
    for marks in ([[0, 1]], [0, 1], 3, [['a', 1], [0, 1]], [[0, 1], [0, 1, 2]]):
        with pytest.raises(UserError, match="line 1: 'marks' is .*; give two pairs"):
            problem.encoding.parse_input('line 1', {'text': 'a', 'marks': marks})
    for mark in ([4, 8], [4, 4], [-1, 3]):
        with pytest.raises(UserError, match='line 1: the mark .* outside'):
            problem.encoding.parse_input('line 1', {'text': 'the cat', 'marks': [[0, 3], mark]})
    one = problem.encoding.parse_input('line 1', {'text': 'the cat', 'marks': [[0, 3], [4, 7]]})
    with pytest.raises(UserError, match="'MAYBE' is not among"):
        problem.encoding.encode(one._replace(label='MAYBE'))
    with pytest.raises(UserError, match='problem.exclusive needs'):
        make(exclusive=True)


def test_marks_are_learned():
    """One and the same text: what differs is the order and the place of the marks."""
    problem, model = small_problems.make(RELATIONS, ('a', 'b', 'c'), **SETTINGS)
    text, places = 'the small ship and the old harbour near the sea', [(10, 14), (27, 34), (44, 47)]
    assert [text[start:end] for start, end in places] == ['ship', 'harbour', 'sea']
    rng, examples = random.Random(1), []
    for first, second in itertools.permutations(places, 2):
        marks = (Mark(0, *first), Mark(0, *second))
        examples.append(MarkedExample('x', (text,), marks, rng.choice('abc')))
    assert len({example.label for example in examples}) == 3
    parts, losses = small_problems.fit(model, examples, 120)
    found = [
        problem.decoder.decode(*pair, Calibration()) for pair in zip(examples, parts, strict=True)
    ]
    assert losses[-1] < 0.1 < losses[0]
    assert problem.decoder.score(examples, found).metrics['accuracy'] == 1.0


@pytest.mark.skipif(not GAP.exists(), reason='needs BERT_JAX_TEST_DATA')
def test_ambiguous_pronouns_of_gap_are_read_and_marked():
    data = make_config()
    data.update(dict(train=(str(GAP / 'gap-development.tsv'),), group='ID'))
    data.columns.update(
        dict(
            id='ID',
            text='Text',
            marks=('Pronoun-offset+Pronoun', 'A-offset+A', 'B-offset+B'),
            candidate_labels=('A-coref', 'B-coref'),
        )
    )
    splits = problems.read(data, 'coreference')
    examples = [*splits.train, *splits.dev]
    assert len(examples) == 4000
    assert sorted(RELATIONS.encoding.count_labels(examples)) == ['FALSE', 'TRUE']
    texts = [set(one.texts for one in own) for own in (splits.train, splits.dev)]
    assert not texts[0] & texts[1]  # both candidates of a pronoun on one side
    problem = make(max_length=512, exclusive=True, positive='TRUE')
    for one in examples[:200]:
        problem.encoding.encode(one)
    assert (
        problem.setup.counts['marks without a token']
        == problem.setup.counts['truncated marks']
        == 0
    )
    # The labels of the data need no revision.
    gold = [
        {label: float(label == one.label) for label in problem.setup.labels} for one in examples
    ]
    assert problem.decoder.postprocess(examples, gold) == gold
