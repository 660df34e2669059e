"""Question answering: gold answers, packed rows, windows and thresholds against brute force."""

import functools
import itertools
import random
from typing import NamedTuple

import jax
import numpy as np
import optax
import pytest
import torch
from flax import linen as nn

from bert_jax import tokenizers
from bert_jax.averages import mean
from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import BatchShape, Items, evaluation_batches, unpack_outputs
from bert_jax.labels.examples import Answer, QuestionExample
from bert_jax.metrics import squad
from bert_jax.problems.base import Calibration
from bert_jax.problems.evaluation import decode
from bert_jax.problems.finetuning_model import EncodedExamples, Predicted
from bert_jax.problems.question_answering import QUESTION_ANSWERING
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from tests.tasks.small_problems import TEXT, make, problem_of

RANDOM = random.Random(0)
ODD = 'The of in costs a naïve café 北京 £5 U.S. dog’s Москва “so” 𝒳y (b) I. 100km\u200b e\u0301t'
WORDS = ODD.split()
SPACES = [' ', ' ', '  ', '\n', '\u00a0 ', '\u2003']
SETTINGS = dict(doc_stride=128, question_tokens=64, answer_tokens=30, n_best=20, no_answer=False)
KINDS = ['wordpiece:140', 'bytebpe:330', 'unigram:130', 'xlnet:130']


def some_question(number: int, num_words: int = 30) -> QuestionExample:
    """Random words with odd spaces between them; the answer is some of the words."""
    context, spans = RANDOM.choice(['', ' ', '\n']), []
    for word in RANDOM.choices(WORDS, k=num_words):
        spans.append((len(context), len(context) + len(word)))
        context += word + RANDOM.choice(SPACES)
    first = RANDOM.randrange(num_words)
    start, end = spans[first][0], spans[min(first + RANDOM.randrange(4), num_words - 1)][1]
    question = ' '.join(RANDOM.choices(WORDS, k=RANDOM.randint(1, 5)))
    return QuestionExample(f'q{number}', question, context, (Answer(context[start:end], start),))


QUESTIONS = [some_question(number) for number in range(40)]
TEXTS = [example.context for example in QUESTIONS]


@functools.cache
def tokenizer(spec: str):
    return tokenizers.train(spec, TEXTS, lowercase=spec.startswith('wordpiece'))


def problem(spec='wordpiece:140', length=64, types=2, **settings):
    settings = (
        dict(doc_stride=128, question_tokens=64, answer_tokens=30, n_best=20, no_answer=False)
        | settings
    )
    own = tokenizer(spec) if isinstance(spec, str) else spec
    return problem_of(QUESTION_ANSWERING, settings, SpecialTokenLayout(own, length, types))


class Computed(NamedTuple):
    parts: list  # of each example, as `decode` takes them
    terms: dict
    logits: list  # of each example's windows, [n, 2]


def compute(task, examples, logits_of, length=128, rows=8) -> Computed:
    """Host outputs of packed examples whose logits are logits_of(batch), [R, T, 2]."""
    found = [task.encoding.encode(example) for example in examples]
    windows_of = [(n, w) for n, own in enumerate(found) for w in range(len(own))]
    items = Items(list(itertools.chain.from_iterable(found)), task.encoding.tokenizer.pad_id)
    parts = [[None] * len(own) for own in found]
    logits = [[None] * len(own) for own in found]
    total = np.zeros(2)

    @jax.jit
    def run(batch, logits_RT2):
        outputs = {'logits': logits_RT2}
        return task.loss.host_outputs(outputs, batch).per_sequence, task.loss.terms(outputs, batch)[
            'answer'
        ]

    for batch, placed in evaluation_batches(items, BatchShape(rows, length, 12)):
        logits_RT2 = np.asarray(logits_of(batch), np.float32)
        slots, term = run(batch, logits_RT2)
        slots = jax.device_get(slots)
        total += [float(term.sum), float(term.count)]
        for place in placed:
            example, window = windows_of[place.item]
            parts[example][window] = unpack_outputs(batch, slots, {}, place)
            (own,) = unpack_outputs(batch, {}, {'logits': logits_RT2}, place)
            logits[example][window] = own['logits']
    return Computed(parts, total, logits)


def gold_logits(batch):
    return 10.0 * batch['answer_ends']


def noise(batch):
    """Logits from a hash of a token and its position in its sequence, whatever the packing."""
    before = np.pad(batch['segment_ids'], ((0, 0), (1, 0)))[:, :-1]
    at = np.arange(before.shape[1])
    place = at - np.maximum.accumulate(np.where(before != batch['segment_ids'], at, 0), axis=1)
    ends = np.array([3.0, 11.0])
    return 2 * np.sin(batch['input_ids'][..., None] * ends + 7.3 * place[..., None] + ends)


def test_the_sequence_is_question_and_window_in_the_layout_of_the_family():
    for types, spec, between in [(2, 'wordpiece:140', 1), (1, 'unigram:130', 2)]:
        task = problem(spec, 48, types)
        example = QUESTIONS[0]
        question, context = task.encoding.tokenizer.encode_batch(
            [example.question, example.context]
        ).ids
        found = task.encoding.encode(example)
        assert len(found) > 1
        covered = []
        for (sequence,) in found:
            is_context = sequence.tokens['is_context'] > 0
            assert len(sequence.ids) <= 48
            first = 1 + len(question) + between
            assert is_context.argmax() == first
            assert sequence.ids[[0, -1]].tolist() == [
                task.encoding.tokenizer.cls_id,
                task.encoding.tokenizer.sep_id,
            ]
            np.testing.assert_array_equal(sequence.ids[1 : 1 + len(question)], question)
            assert (sequence.ids[first - between : first] == task.encoding.tokenizer.sep_id).all()
            expected = (np.arange(len(is_context)) >= first) & (types > 1)
            np.testing.assert_array_equal(sequence.token_type_ids, expected)
            covered.append(sequence.ids[is_context].tolist())
        assert all(any(piece in own for own in covered) for piece in context.tolist())
        size = max(map(len, covered))
        assert covered[0] == context[:size].tolist()
        assert covered[-1] == context[-size:].tolist()
        for left, right in itertools.pairwise(covered):
            overlap = size // 2
            assert left[-overlap:] == right[:overlap] or right is covered[-1]


@pytest.mark.parametrize('spec', KINDS)
def test_gold_answers_survive_encoding_and_decoding(spec):
    for length in (128, 48):
        task = problem(spec, length, answer_tokens=99)
        found = compute(task, QUESTIONS, gold_logits)
        assert length == 128 or max(map(len, found.parts)) > 2
        for example, parts in zip(QUESTIONS, found.parts, strict=True):
            prediction, (gold,) = (
                task.decoder.decode(example, parts, Calibration()),
                example.answers,
            )
            assert (prediction['text'], prediction['start']) == gold
            assert prediction['text'] == example.context[gold.start : prediction['end']]
            assert prediction['probability'] > 0.99
        assert not +task.setup.counts


def qamr(folder) -> list[QuestionExample]:
    """The filtered questions of QAMR, with three answers each."""
    lines = (folder / 'wiki-sentences.tsv').read_text(encoding='utf-8').splitlines()
    sentences = dict(line.split('\t') for line in lines)
    found = []
    for line in (folder / 'dev.tsv').read_text(encoding='utf-8').split('\n')[:-1]:
        fields = line.split('\t')
        context = sentences[fields[0]]
        words = context.split(' ')
        starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
        answers = []
        for tokens in (fields[6], *(field.partition(':')[2] for field in fields[7:])):
            first, *_ = places = [int(place) for place in tokens.split()]
            end = starts[places[-1]] + len(words[places[-1]])
            answers.append(Answer(context[starts[first] : end], starts[first]))
        found.append(QuestionExample(str(len(found)), fields[5], context, tuple(answers)))
    return found


def check_lossless(examples, task, most_lost: float):
    """Check that all gold answers are decoded, except those counted as longer than a window."""
    found = compute(task, examples, gold_logits, rows=64)
    predictions = [
        task.decoder.decode(*pair, Calibration())
        for pair in zip(examples, found.parts, strict=True)
    ]
    lost = [
        example
        for example, prediction in zip(examples, predictions, strict=True)
        if (prediction['text'], prediction['start']) != example.answers[0]
    ]
    counts = task.setup.counts
    assert len(lost) == counts['answers longer than a window'] <= most_lost * len(examples)
    if not lost:
        assert task.decoder.score(examples, predictions).metrics['exact_match'] == 1.0


def real_tokenizers(folder, examples):
    yield tokenizers.load(str(folder / 'vocab_bert_base_uncased'))
    for spec in ('bytebpe:8000', 'unigram:8000'):
        yield tokenizers.train(spec, [example.context for example in examples], False)


@pytest.mark.parametrize(
    'every', [40, pytest.param(1, marks=pytest.mark.slow)], ids=['some', 'all']
)
def test_answers_of_qamr_survive_encoding_and_decoding(real_data, every):
    examples = qamr(real_data / 'qamr')[::every]
    for own in real_tokenizers(real_data, examples):
        for length, most_lost in ((128, 0.0001), (48, 0.01), (32, 0.04)):
            task = problem(own, length, answer_tokens=999, doc_stride=8, n_best=2)
            check_lossless(examples, task, most_lost)


def test_loss_is_the_cross_entropy_of_each_sequence():
    task = problem(length=48)
    examples = [*QUESTIONS[:8], QUESTIONS[8]._replace(answers=None)]
    found = compute(task, examples, noise)
    expected = []
    for example, logits in zip(examples[:-1], found.logits, strict=False):
        for (sequence,), own_T2 in zip(task.encoding.encode(example), logits, strict=True):
            targets = sequence.tokens['answer_ends'].argmax(0)
            loss = torch.nn.functional.cross_entropy(
                torch.tensor(own_T2.T), torch.tensor(targets), reduction='mean'
            )
            expected.append(float(loss))
    assert len(expected) > len(examples)
    assert found.terms[1] == len(expected)  # unlabeled sequences are not counted
    assert found.terms[0] == pytest.approx(sum(expected), rel=1e-5)


def test_answers_agree_with_brute_force():
    """Over every pair of tokens of every window; an answer in several windows counts in the one
    with the most context."""
    task = problem(length=40, n_best=40, answer_tokens=5)
    # without characters that belong to no token
    examples = [own for own in QUESTIONS if '\u200b' not in own.context][:5]
    for example, parts, logits in zip(examples, *compute(task, examples, noise)[::2], strict=True):
        (offsets,) = task.encoding.tokenizer.encode_batch([example.context]).offsets
        best, start = {}, 0
        sequences = [sequence for (sequence,) in task.encoding.encode(example)]
        sizes = [int(own.tokens['is_context'].sum()) for own in sequences]
        stride = sizes[0] - sizes[0] // 2
        for number, (sequence, size) in enumerate(zip(sequences, sizes, strict=True)):
            start = min(number * stride, len(offsets) - size)
            shift = int(sequence.tokens['is_context'].argmax())
            for a, b in itertools.combinations_with_replacement(range(size), 2):
                if b - a < 5:
                    around = min(a, size - 1 - b)
                    score = logits[number][shift + a, 0] + logits[number][shift + b, 1]
                    best.setdefault((start + a, start + b), []).append((-around, number, score))
        scores = {}
        for (a, b), found in best.items():
            text = example.context[offsets[a, 0] : offsets[b, 1]]
            span = (int(offsets[a, 0]) + len(text) - len(text.lstrip()), int(offsets[b, 1]))
            scores[span] = max(scores.get(span, -99), min(found)[2])
        expected = sorted(scores, key=lambda span: -scores[span])[:10]
        found = task.decoder.decode(example, parts, Calibration())
        assert [(own['start'], own['end']) for own in found['n_best'][:10]] == expected
        ratios = [own['probability'] / found['probability'] for own in found['n_best'][:10]]
        np.testing.assert_allclose(
            ratios, np.exp([scores[span] - scores[expected[0]] for span in expected]), rtol=1e-4
        )
        assert sum(own['probability'] for own in found['n_best']) == pytest.approx(1)
        assert len(found['n_best']) == 40


def test_questions_without_answer_and_the_tuned_threshold():
    # An answer of articles alone is as good as none by the rules of version 2.0.
    chosen = [own for own in QUESTIONS if squad.normalize(own.answers[0].text)][:20]
    examples = [*(own._replace(answers=()) for own in chosen[:10]), *chosen[10:]]
    task = problem(length=48, no_answer=True)

    def logits_of(batch):
        """Gold ends, but every sequence points at [CLS] by 4 as well."""
        logits = 10.0 * batch['answer_ends']
        rows, slots = np.nonzero(batch['first_positions'] >= 0)
        logits[rows, batch['first_positions'][rows, slots]] += 4
        return logits

    parts = compute(task, examples, logits_of).parts
    before = [
        task.decoder.decode(*pair, Calibration()) for pair in zip(examples, parts, strict=True)
    ]
    assert [own['text'] for own in before] == [''] * 10 + [e.answers[0].text for e in examples[10:]]
    assert before[0]['start'] is None
    assert before[0]['no_answer_score'] == pytest.approx(28)
    assert before[10]['no_answer_score'] == pytest.approx(8 - 20)
    scores = task.decoder.score(examples, before)
    assert set(scores.metrics.values()) == {1.0}
    assert [row[3] for row in scores.tables['Questions'].rows] == [20, 10, 10]
    # A threshold is needed where everything looks unanswerable, and is found.
    biased = [
        [[{**part, 'null_score': part['null_score'] + 50.0}] for (part,) in own] for own in parts
    ]
    after = [
        task.decoder.decode(*pair, Calibration()) for pair in zip(examples, biased, strict=True)
    ]
    metrics = task.decoder.score(examples, after).metrics
    assert (metrics['f1'], metrics['has_answer_f1'], metrics['best_f1']) == (0.5, 0.0, 1.0)
    thresholds = task.decoder.tune_thresholds(examples, biased)
    assert thresholds == {'no_answer_threshold': pytest.approx(38)}
    after = decode(task, examples, Predicted(biased, [], {}), thresholds, None)
    assert task.decoder.score(examples, after).metrics['f1'] == 1.0
    assert task.decoder.to_record(examples[0], after[0])['gold'] == []


def test_answers_inside_a_token_are_widened_and_counted():
    task = problem()
    context = 'The dog costs of cost'
    (offsets,) = task.encoding.tokenizer.encode_batch([context]).offsets
    start, end = next((a, b) for a, b in offsets.tolist() if b - a > 2)
    example = QuestionExample('q', 'in', context, (Answer(context[start + 1 : end], start + 1),))
    (parts,) = compute(task, [example], gold_logits).parts
    assert task.decoder.decode(example, parts, Calibration())['text'] == context[start:end]
    assert task.setup.counts == {'answers that start or end inside a token': 1}


def test_answers_that_cannot_be_predicted_are_counted():
    task = problem(length=48, answer_tokens=20)
    example = QUESTIONS[0]
    everything = example.context.strip()
    place = example.context.index(everything)
    found = task.encoding.encode(example._replace(answers=(Answer(everything, place),)))
    assert all(own.tokens['answer_ends'].argmax(0).tolist() == [0, 0] for (own,) in found)
    task.encoding.encode(example._replace(answers=None, question='dog ' * 80))
    odd = QuestionExample('odd', 'who?', 'costs \u200b of', (Answer('\u200b', 6),))
    ((own,),) = task.encoding.encode(odd)
    assert not own.tokens['answer_ends'].any()  # not learned as having no answer
    assert task.setup.counts == {
        'answers longer than a window': 1,
        'answers longer than problem.answer_tokens': 1,
        'truncated questions': 1,
        'answers without a token': 1,
    }


def test_a_question_without_answer_needs_the_no_answer_setting():
    example = QUESTIONS[1]._replace(answers=())
    with pytest.raises(UserError, match='q1: the question has no answer.*no_answer=True'):
        problem().encoding.encode(example)
    assert problem(no_answer=True).encoding.encode(example)


def test_an_empty_context_has_no_answer():
    for no_answer in (False, True):
        task = problem(no_answer=no_answer)
        example = task.encoding.parse_input('empty', {'question': 'who?', 'context': ''})
        (parts,) = compute(task, [example], noise).parts
        prediction = task.decoder.decode(example, parts, Calibration())
        assert (prediction['text'], prediction['n_best']) == ('', [])
        assert task.decoder.to_record(example, prediction)['gold'] is None
    with pytest.raises(UserError, match="line: key 'context' is missing"):
        task.encoding.parse_input('line', {'question': 'who?'})


def test_a_tiny_encoder_memorizes_some_questions():
    rng, words, examples = random.Random(0), TEXT.split(), []
    for number in range(6):
        own = rng.choices(words, k=40)
        first = rng.randrange(38)
        start = len(' '.join([*own[:first], '']))
        answer = Answer(' '.join(own[first : first + 2]), start)
        question = ' '.join(rng.choices(words, k=3))
        examples.append(QuestionExample(str(number), question, ' '.join(own), (answer,)))
    task, model = make(QUESTION_ANSWERING, (), 40, **SETTINGS)
    encoded = EncodedExamples.of(task, examples)
    assert len(encoded.items) > len(examples)
    shape = BatchShape(8, 128, 8)
    ((batch, places),) = evaluation_batches(encoded.items, shape)

    def loss(params):
        return mean(task.loss.terms(model.outputs(params, batch), batch)['answer'])

    @jax.jit
    def train(params):
        def step(carry, _):
            params, state = carry
            value, gradient = jax.value_and_grad(loss)(params)
            updates, state = optimizer.update(gradient, state)
            return (optax.apply_updates(params, updates), state), value

        (params, _), losses = jax.lax.scan(step, (params, optimizer.init(params)), length=120)
        outputs = model.outputs(params, batch)
        return losses, task.loss.host_outputs(outputs, batch)

    optimizer = optax.adam(3e-3)
    losses, answers = train(
        nn.unbox(jax.jit(model.model.init)(jax.random.key(0), model.rows(batch))['params'])
    )
    assert losses[0] > 2
    assert losses[-1] < 0.1
    answers = jax.device_get(answers)
    parts = [None] * len(encoded.items)
    for place in places:
        parts[place.item] = unpack_outputs(batch, *answers, place)
    predictions = [
        task.decoder.decode(example, own, Calibration())
        for example, own in zip(examples, encoded.by_example(parts), strict=True)
    ]
    assert task.decoder.score(examples, predictions).metrics['exact_match'] == 1.0
