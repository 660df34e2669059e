"""Tagging: every word is learned and predicted exactly once, whatever the text."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import tokenizers
from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import BatchShape, Items, evaluation_batches, unpack_outputs
from bert_jax.labels import word_spans
from bert_jax.labels.examples import TaggedExample
from bert_jax.models import crf
from bert_jax.problems.base import Calibration
from bert_jax.problems.finetuning_model import EncodedExamples, predict, prediction_step
from bert_jax.problems.tagging import TAGGING, mean_over_words
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from tests.parity.odd_strings import ODD
from tests.tasks.small_problems import TEXT, large_params, make, problem_of

SETTINGS = dict(
    labels=(),
    label_pieces='first',
    decode_pieces='first',
    crf=False,
    crf_rate=20.0,
    overlap=0.5,
    label_smoothing=0.0,
    class_weights='none',
)
LABELS = ('B-x', 'B-y', 'I-x', 'I-y', 'O')
LINES = ["I'm gonna sit; you don't wanna. We gonna, we wanna! Naïve cafés in 北京 and Москва."] * 40
KINDS = {'wordpiece': 'wordpiece:100', 'bytebpe': 'bytebpe:330', 'unigram': 'unigram:80'}


@pytest.fixture(scope='module')
def trained():
    return {kind: tokenizers.train(spec, LINES, True) for kind, spec in KINDS.items()}


def tagging(tokenizer, labels=LABELS, max_length=128, train=(), **settings):
    layout = SpecialTokenLayout(tokenizer, max_length, 2)
    return problem_of(TAGGING, SETTINGS | settings, layout, labels, train)


def random_words(text, rng):
    words, place = [], 0
    while place < len(text):
        end = min(place + int(rng.integers(1, 7)), len(text))
        words.append((place, end))
        place = end + int(rng.integers(3))
    return tuple(words)


def random_tags(number, rng):
    """Legal BIO tags."""
    tags = []
    for _ in range(number):
        before = tags[-1] if tags else 'O'
        allowed = ['O', 'B-x', 'B-y'] + (['I' + before[1:]] * 3 if before != 'O' else [])
        tags.append(str(rng.choice(allowed)))
    return tuple(tags)


def odd_examples(seed=0):
    rng = np.random.default_rng(seed)
    for name, text in (ODD | {'words': LINES[0], 'long word': 'a ' + 'xyz' * 60 + ' b'}).items():
        words = random_words(text, rng)
        yield TaggedExample(name, text, words, random_tags(len(words), rng))


def as_if_predicted(sequence):
    """The host outputs of a model that predicts every learned tag correctly."""
    label = sequence.tokens['label']
    tag = np.maximum(label - 1, 0)
    return {'word': sequence.tokens['word'], 'tag': tag, 'probability': np.ones(len(tag))}


def round_trip(problem, example):
    """The decoded gold tags, and the number of words that are learned."""
    made = problem.encoding.encode(example)
    parts = [[as_if_predicted(sequence) for sequence in item] for item in made]
    pairs = zip(parts, made, strict=True)
    first = [own['word'][sequence.tokens['label'] > 0] for (own,), (sequence,) in pairs]
    learned = int((np.concatenate(first) >= 2).sum()) if first else 0
    return tuple(problem.decoder.decode(example, parts, Calibration())['tags']), learned


@pytest.mark.parametrize('pieces', ['first', 'all'])
@pytest.mark.parametrize('kind', KINDS)
def test_gold_tags_survive_encoding_and_decoding_of_odd_texts(trained, kind, pieces):
    for max_length, overlap in ((512, 0.5), (12, 0.0), (12, 0.5), (3, 0.9)):
        problem = tagging(
            trained[kind], max_length=max_length, label_pieces=pieces, overlap=overlap
        )
        for example in odd_examples():
            tags, learned = round_trip(problem, example)
            assert tags == example.tags, (example.id, max_length)
            assert learned == len(example.words)
        assert problem.setup.counts['words tokenized separately'] > 0
        assert (problem.setup.counts['texts split into windows'] > 0) == (max_length < 100)


def test_words_without_tags_are_predicted_but_not_learned(trained):
    problem = tagging(trained['wordpiece'], max_length=12)
    for example in odd_examples():
        made = problem.encoding.encode(example._replace(tags=None))
        assert not any(sequence.tokens['label'].any() for (sequence,) in made)
        answered = sum(int((sequence.tokens['word'] == 3).sum()) for (sequence,) in made)
        assert answered == len(example.words)


def test_labels_are_at_the_first_token_or_at_all_tokens_of_a_word(trained):
    """[CLS] and [SEP] have no label."""
    tokenizer = trained['unigram']
    example = TaggedExample('a', 'sitwanna xyz', ((0, 8), (9, 12)), ('B-y', 'O'))
    ((first,),) = tagging(tokenizer).encoding.encode(example)
    ((every,),) = tagging(tokenizer, label_pieces='all').encoding.encode(example)
    lengths = [len(tokenizer.encode_batch([word]).ids[0]) for word in ('sitwanna', 'xyz')]
    assert max(lengths) > 1
    expected = [2] * lengths[0] + [5] * lengths[1]
    assert every.tokens['label'].tolist() == [0, *expected, 0]
    starts = np.cumsum([1, *lengths[:-1]])
    assert np.flatnonzero(first.tokens['label']).tolist() == starts.tolist()
    assert first.tokens['label'][starts].tolist() == [2, 5]
    np.testing.assert_array_equal(first.tokens['word'], every.tokens['word'])


def packed(problem, examples, rows=2, length=64):
    """Batches of the items of examples, and the example of each item."""
    made = [problem.encoding.encode(example) for example in examples]
    flat = Items([item for own in made for item in own], problem.encoding.tokenizer.pad_id)
    owners = np.repeat(np.arange(len(made)), [len(own) for own in made])
    return list(evaluation_batches(flat, BatchShape(rows, length, 16))), owners


def answered(problem, outputs_of, examples, **shape):
    """Predictions for examples in packed batches, from given outputs of the model."""
    batches, owners = packed(problem, examples, **shape)
    parts, answers_of = [None] * len(owners), jax.jit(problem.loss.host_outputs)
    for batch, places in batches:
        answers = jax.device_get(answers_of(outputs_of(batch), batch))
        for placed in places:
            parts[placed.item] = unpack_outputs(batch, *answers, placed)
    return [
        problem.decoder.decode(
            example, [parts[i] for i in np.flatnonzero(owners == number)], Calibration()
        )
        for number, example in enumerate(examples)
    ]


def random_chain(rng, legal_only=True):
    size = len(LABELS)
    scores = [rng.normal(size=shape) for shape in ((size, size), size, size)]
    if legal_only:
        legal = crf.allowed_tags(LABELS)
        pairs = zip(legal, scores, strict=True)
        scores = [np.where(own, score, crf.DISALLOWED) for own, score in pairs]
    return crf.TransitionScores(*(jnp.asarray(score, jnp.float32) for score in scores))


def logits_by_token(batch, seed=3):
    """Logits that depend on a token and its position in its sequence, but not on packing."""
    table = np.random.default_rng(seed).normal(size=(64, 512, len(LABELS)))
    segment_ids = batch['segment_ids']
    starts = np.array([[row.tolist().index(s) for s in row] for row in segment_ids])
    place = np.arange(segment_ids.shape[1]) - starts
    return jnp.asarray(table[place % 64, batch['input_ids'] % 512], jnp.float32)


@pytest.mark.parametrize('settings', [{}, {'decode_pieces': 'mean'}, {'crf': True}])
def test_packed_rows_and_rows_of_one_sequence_agree(trained, settings):
    problem = tagging(trained['unigram'], max_length=24, **settings)
    examples = [example for example in odd_examples() if example.words]
    chain = random_chain(np.random.default_rng(0))

    def outputs_of(batch):
        found = {'logits': logits_by_token(batch)}
        return found | ({'crf': chain} if problem.setup.settings.crf else {})

    def mean_loss(rows, length):
        total, terms_of = np.zeros(2), jax.jit(problem.loss.terms)
        for batch, _ in packed(problem, examples, rows, length)[0]:
            term = terms_of(outputs_of(batch), batch)['tagging']
            total += [float(term.sum), float(term.count)]
        return total

    alone = mean_loss(8, 24)
    assert alone[1] == sum(len(example.words) for example in examples)
    np.testing.assert_allclose(mean_loss(4, 96), alone, rtol=1e-5)
    together = answered(problem, outputs_of, examples, rows=4, length=96)
    for one, other in zip(
        answered(problem, outputs_of, examples, rows=8, length=24), together, strict=True
    ):
        assert one['tags'] == other['tags']
        np.testing.assert_allclose(one['probabilities'], other['probabilities'], rtol=1e-4)
    if problem.setup.settings.crf:
        assert_legal_inside_windows(problem, examples, together)


def assert_legal_inside_windows(problem, examples, predictions):
    legal, numbers = crf.allowed_tags(LABELS), {label: i for i, label in enumerate(LABELS)}
    for example, prediction in zip(examples, predictions, strict=True):
        if len(problem.encoding.encode(example)) == 1:
            tags = [numbers[tag] for tag in prediction['tags']]
            assert legal.start_C[tags[0]]
            assert all(legal.transition_CC[pair] for pair in itertools.pairwise(tags))


def test_mean_over_words_is_the_mean_over_the_tokens_of_each_word():
    rng = np.random.default_rng(0)
    word = np.array([[0, 1, 3, 1, 1, 0, 2, 3, 1, 0, 0, 3], [3, 1, 0, 0, 3, 2, 1, 1, 1, 1, 1, 0]])
    values = rng.normal(size=(*word.shape, 3))
    found = mean_over_words(values, word)
    for row, first, last in ((0, 2, 5), (0, 6, 7), (0, 7, 9), (0, 11, 12), (1, 0, 2), (1, 5, 11)):
        np.testing.assert_allclose(found[row, first], values[row, first:last].mean(0), atol=1e-6)


def test_loss_is_the_cross_entropy_of_labeled_tokens(trained):
    """Compared with a loop over tokens; logits of other tokens have no gradient."""
    example = next(example for example in odd_examples() if example.id == 'words')
    for pieces, smoothing, weights in (
        ('first', 0.0, 'none'),
        ('all', 0.1, 'none'),
        ('first', 0.0, 'balanced'),
    ):
        problem = tagging(
            trained['wordpiece'],
            label_pieces=pieces,
            label_smoothing=smoothing,
            class_weights=weights,
            train=[example],
        )
        counts = {label: example.tags.count(label) for label in LABELS}
        ((batch, _),), _ = packed(problem, [example], rows=1, length=128)
        logits = np.random.default_rng(0).normal(size=(1, 128, len(LABELS)))

        def loss(logits, problem=problem, batch=batch):
            return problem.loss.terms({'logits': logits}, batch)['tagging'].sum

        shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        expected, total = 0, 0
        for place in np.flatnonzero(batch['label'][0]):
            targets = np.full(len(LABELS), smoothing / len(LABELS))
            targets[batch['label'][0, place] - 1] += 1 - smoothing
            own = LABELS[batch['label'][0, place] - 1]
            weight = len(example.tags) / (5 * counts[own]) if weights == 'balanced' else 1
            expected -= weight * targets @ np.log(shares[0, place])
            total += weight
        count = problem.loss.terms({'logits': logits}, batch)['tagging'].count
        np.testing.assert_allclose(count, total, rtol=1e-6)
        np.testing.assert_allclose(loss(logits), expected, rtol=1e-5)
        touched = np.abs(jax.grad(loss)(jnp.asarray(logits)))[0].sum(-1) > 0
        np.testing.assert_array_equal(touched, batch['label'][0] > 0)


def test_start_and_end_scores_apply_to_texts_not_to_windows(trained):
    """Each counts once for a text of several windows."""
    problem = tagging(trained['wordpiece'], max_length=12, crf=True)
    example = next(example for example in odd_examples() if example.id == 'words')
    batches, owners = packed(problem, [example], rows=8, length=12)
    assert len(owners) > 4
    zero = crf.TransitionScores(*(jnp.zeros(shape) for shape in ((5, 5), 5, 5)))

    @jax.jit
    def gradient_of(scores, logits, batch):
        def loss(scores):
            return problem.loss.terms({'logits': logits, 'crf': scores}, batch)['tagging'].sum

        return jax.grad(loss)(scores)

    gradients = [gradient_of(zero, logits_by_token(batch), batch) for batch, _ in batches]
    gradient = jax.tree.map(lambda *own: np.sum(own, axis=0), *gradients)
    # p(tag) − [tag is gold] of one word sums to 0, and the entry of the gold tag is in (−1, 0).
    for own, tag in ((gradient.start_C, example.tags[0]), (gradient.end_C, example.tags[-1])):
        gold = LABELS.index(tag)
        assert -1 < own[gold] < 0
        np.testing.assert_allclose(np.delete(own, gold).sum(), -own[gold], rtol=1e-4)


def test_a_model_predicts_the_same_for_packed_and_single_sequences():
    """Loss and tags of an encoder with a CRF whose scores are not 0."""
    rng, words = np.random.default_rng(4), TEXT.split()
    examples = []
    for number in range(12):
        text, places = word_spans.join_words([str(rng.choice(words)) for _ in range(1 + number)])
        examples.append(TaggedExample(f'{number}', text, places, random_tags(1 + number, rng)))
    settings = SETTINGS | {'labels': LABELS, 'crf': True, 'decode_pieces': 'mean'}
    problem, model = make(TAGGING, **settings)
    encoded = EncodedExamples.of(problem, examples)
    params = large_params(model, encoded)
    params['crf'] = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), params['crf'])
    step = jax.jit(prediction_step(model, with_terms=True))
    together, _, loss = predict(step, params, encoded, BatchShape(2, 64, 8))
    alone, _, same_loss = predict(step, params, encoded, BatchShape(4, 32, 1))
    np.testing.assert_allclose(loss['tagging'], same_loss['tagging'], rtol=1e-4)
    tags = set()
    for example, own, other in zip(examples, together, alone, strict=True):
        found, expected = (
            problem.decoder.decode(example, own, Calibration()),
            problem.decoder.decode(example, other, Calibration()),
        )
        assert len(found['tags']) == len(example.words)
        assert found['tags'] == expected['tags']
        np.testing.assert_allclose(found['probabilities'], expected['probabilities'], rtol=1e-3)
        tags |= set(found['tags'])
    assert len(tags) > 2


def test_entities_are_scored_by_f1_and_other_tags_by_accuracy(trained):
    examples = [TaggedExample('a', 'a b c', ((0, 1), (2, 3), (4, 5)), ('B-x', 'I-x', 'O'))]
    guess = [{'tags': ['B-x', 'O', 'O'], 'probabilities': [1.0] * 3}]
    found = tagging(trained['wordpiece']).decoder.score(examples, guess)
    assert next(iter(found.metrics)) == 'f1'
    assert found.metrics['f1'] == 0
    np.testing.assert_allclose(found.metrics['accuracy'], 2 / 3)
    plain = tagging(trained['wordpiece'], labels=('ADJ', 'NOUN'))
    examples = [examples[0]._replace(tags=('NOUN', 'NOUN', 'ADJ'))]
    guess = [{'tags': ['NOUN', 'ADJ', 'ADJ'], 'probabilities': [1.0] * 3}]
    found = plain.decoder.score(examples, guess)
    assert next(iter(found.metrics)) == 'accuracy'
    np.testing.assert_allclose(found.metrics['accuracy'], 2 / 3)
    assert 'entities' not in plain.decoder.to_record(examples[0], guess[0])


def test_records_give_words_and_entities_in_characters(trained):
    problem = tagging(trained['wordpiece'])
    example = problem.encoding.parse_input('line 1', {'text': 'We sit  in Naïve cafés, you.'})
    tags = ['O', 'O', 'O', 'B-x', 'I-x', 'O', 'B-y', 'O']
    shares = [0.5, 0.5, 0.5, 0.9, 0.7, 0.5, 0.8, 0.5]
    record = problem.decoder.to_record(example, {'tags': tags, 'probabilities': shares})
    json.dumps(record)
    expected = ['We', 'sit', 'in', 'Naïve', 'cafés', ',', 'you', '.']
    assert [word['text'] for word in record['words']] == expected
    assert record['entities'] == [
        {'start': 11, 'end': 22, 'text': 'Naïve cafés', 'label': 'x', 'probability': 0.7},
        {'start': 24, 'end': 27, 'text': 'you', 'label': 'y', 'probability': 0.8},
    ]
    given = problem.encoding.parse_input('line 2', {'words': ["don't", 'sit', '.']})
    assert [given.text[start:end] for start, end in given.words] == ["don't", 'sit', '.']


@pytest.mark.parametrize(
    ('settings', 'tags', 'message'),
    [
        ({}, ('B-x', 'B-z'), "example a: the label 'B-z'"),
        ({}, ('O',), '1 tags for 2 words'),
        ({'crf': True}, ('O', 'I-x'), 'O, I-x at word 1 are not legal'),
        ({'crf': True}, ('I-x', 'O'), 'I-x at word 0 are not legal'),
        ({'crf': True, 'label_pieces': 'all'}, (), 'one tag per word'),
        ({'crf': True, 'class_weights': 'balanced'}, (), 'class_weights=none'),
    ],
)
def test_mistakes_are_reported_in_one_line(trained, settings, tags, message):
    example = TaggedExample('a', 'We sit', ((0, 2), (3, 6)), tags)
    with pytest.raises(UserError, match=message) as caught:
        tagging(trained['wordpiece'], **settings).encoding.encode(example)
    assert '\n' not in str(caught.value)
