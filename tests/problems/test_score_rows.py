"""The metrics of resamples, which are computed from counts, are those of the resampled examples."""

import dataclasses

import numpy as np
import pytest
from ml_collections import ConfigDict

from bert_jax.labels.examples import PromptExample, Span, SpansExample, TaggedExample, TextExample
from bert_jax.problems import PROBLEMS
from bert_jax.problems.base import Calibration, Setup
from bert_jax.problems.prompt import PromptPrediction
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from tests.inference.small_runs import tokenizer

NUMBER = 12
DRAW = np.random.default_rng(0)


def make(kind, labels, **settings):
    values = {**PROBLEMS[kind].settings, **settings}
    layout = SpecialTokenLayout(tokenizer(), 24, 2)
    return PROBLEMS[kind].load().build(Setup(ConfigDict(values), layout, tuple(labels)))


def probabilities(labels):
    return dict(zip(labels, DRAW.dirichlet(np.ones(len(labels))).tolist(), strict=True))


def classes(labels, **settings):
    examples = [
        TextExample(f'{n // 3}-{n}', ('x',), str(DRAW.choice(list(labels)))) for n in range(NUMBER)
    ]
    predictions = [probabilities(labels) for _ in examples]
    return make('classification', labels, **settings), examples, predictions


def tags(labels):
    examples, predictions = [], []
    for number in range(NUMBER):
        words = tuple((2 * n, 2 * n + 1) for n in range(number % 5))
        own, guessed = (tuple(DRAW.choice(labels, size=len(words))) for _ in range(2))
        examples.append(TaggedExample(str(number), 'a ' * len(words), words, own))
        predictions.append({'tags': list(guessed), 'probabilities': [], 'all': []})
    return make('tagging', labels), examples, predictions


def spans(labels):
    def some():
        return [(n, n + 1, DRAW.choice(labels)) for n in range(DRAW.integers(4))]

    examples = [
        SpansExample(str(n), 'a b c d', (), tuple(Span(*span) for span in some()))
        for n in range(NUMBER)
    ]
    predictions = [
        [dict(zip(('start', 'end', 'label'), span, strict=True)) for span in some()]
        for _ in examples
    ]
    return make('spans', labels), examples, predictions


CASES = {
    'classes': lambda: classes('abc'),
    'metrics of classes': lambda: classes(
        'abc', positive='b', negative='c', metrics=('f1', 'f1_micro', 'exact_match')
    ),
    'parts of speech': lambda: tags(['NOUN', 'VERB', 'ADP']),
    'entities': lambda: tags(['O', 'B-X', 'I-X', 'B-Y']),
    'labels of entities': lambda: tags(['O', 'LOC', 'PER']),
    'spans': lambda: spans(['X', 'Y']),
}


@pytest.mark.parametrize('case', CASES)
def test_metrics_of_drawn_examples(case):
    problem, examples, predictions = CASES[case]()
    score = problem.decoder.score_rows(examples, predictions)
    for rows in DRAW.integers(NUMBER, size=(20, NUMBER)):
        drawn = [[values[row] for row in rows] for values in (examples, predictions)]
        wanted = problem.decoder.score(*drawn).metrics
        found = score(rows)
        assert list(found) == list(wanted)
        assert found == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize('kind', ['prompt', 'prompt_regression'])
def test_metrics_of_drawn_prompts(kind):
    labels = ('low', 'high') if kind == 'prompt_regression' else ('no', 'yes')
    settings = {
        'template': '{text} [MASK].',
        'answers': tuple(map('{}={}'.format, labels, ('the', 'moon'))),
    }
    problem = make(kind, labels, **settings)
    gold = DRAW.random(NUMBER) if kind == 'prompt_regression' else DRAW.choice(labels, NUMBER)
    examples = [PromptExample(str(n), ('text',), ('x',), gold[n]) for n in range(NUMBER)]
    predictions = [PromptPrediction(probabilities(labels), ()) for _ in examples]
    score = problem.decoder.score_rows(examples, predictions)
    for rows in DRAW.integers(NUMBER, size=(10, NUMBER)):
        drawn = [[values[row] for row in rows] for values in (examples, predictions)]
        assert score(rows) == pytest.approx(problem.decoder.score(*drawn).metrics, abs=1e-12)


def test_probabilities_of_classes_in_an_array_are_scored_and_written_as_a_dict_is():
    problem, examples, dicts = classes('abc')
    predictions = [
        problem.decoder.decode(
            example, [[{'probabilities': np.array(list(own.values()))}]], Calibration()
        )
        for example, own in zip(examples, dicts, strict=True)
    ]
    assert predictions == dicts
    assert problem.decoder.score(examples, predictions) == problem.decoder.score(examples, dicts)
    setup = dataclasses.replace(problem.setup, all_probabilities=True)
    problem = PROBLEMS['classification'].load().build(setup)
    for example, own, wanted in zip(examples, predictions, dicts, strict=True):
        record = problem.decoder.to_record(example, own)
        assert record == problem.decoder.to_record(example, wanted)
        assert type(record['probabilities']) is dict
