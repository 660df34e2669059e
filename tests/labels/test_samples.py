"""The sample files of the project and the named tasks that use them."""

import os

import pytest

from bert_jax.labels import benchmarks, data_keys, formats
from bert_jax.problems import PROBLEMS
from configs.finetune_tasks import TASKS
from tests.labels.reading import example_types, read

SAMPLES = sorted(name for name in TASKS if name.startswith('sample_'))


def test_every_sample_file_and_every_kind_of_problem_has_a_task():
    files = {TASKS[name]['data']['train'][0] for name in SAMPLES}
    assert {
        f'sample:{name}'
        for name in os.listdir(formats.SAMPLES)
        if name not in ('README.md', 'formats')
    } == files
    # Prompts read the samples of classification; the others read the user's own files.
    without_sample = {'prompt', 'prompt_regression', 'sparse_embedding', 'late_interaction'}
    without_sample |= {'reranking'}
    assert {TASKS[name]['kind'] for name in SAMPLES} == set(PROBLEMS) - without_sample


def test_every_benchmark_has_a_task():
    own_files = ('few_shot', 'embedding', 'sparse_embedding', 'late_interaction', 'reranking')
    own_files += ('instructions',)
    others = {name for name in TASKS if name not in (*SAMPLES, *own_files)}
    assert others == set(benchmarks.BENCHMARKS)
    for name in others:
        assert TASKS[name]['kind'] == benchmarks.BENCHMARKS[name].kind
        assert TASKS[name]['data']['dataset'] == name


@pytest.mark.parametrize('name', sorted(TASKS))
def test_tasks_set_only_known_keys(name):
    data = data_keys.make_config().lock()
    data.update(TASKS[name]['data'])  # raises for another key or type
    keys = {'batch_size', 'learning_rate', 'epochs', 'sequence_length'}
    assert set(TASKS[name]['recipe']) == keys


@pytest.mark.parametrize('name', SAMPLES)
def test_samples_are_read_without_repair_and_have_all_labels(name):
    task = TASKS[name]
    splits = read(task['kind'], **task['data'])
    assert len(splits.train) >= 24
    assert len(splits.dev) >= 8
    for key in ('malformed', 'misplaced', 'repaired_tags', 'texts_made_of_words'):
        assert not splits.report[key]
    everything = splits.train + splits.dev
    assert {type(one) for one in everything} <= {*example_types(task['kind'])}
    assert len({one.id for one in everything}) == len(everything)
    learned = [] if task['kind'] in ('semantic_roles', 'constituency') else everything
    for one in learned:  # of these two, labels that no training example has are counted and missed
        assert not set(_labels(one)) - {label for other in splits.train for label in _labels(other)}
    others = ('question_answering', 'embedding', 'generation', 'instructions')
    if task['kind'] not in ('regression', *others):
        assert len({label for one in splits.dev for label in _labels(one)}) > 1
    if task['kind'] == 'question_answering':
        assert {bool(one.answers) for one in splits.dev} == {True, False}


def test_the_sample_of_spans_has_nested_ones():
    task = TASKS['sample_spans']
    splits = read(task['kind'], **task['data'])
    assert any(
        a != b and b.start <= a.start and a.end <= b.end
        for one in splits.dev
        for a in one.spans
        for b in one.spans
    )


def test_problems_read_known_formats_and_every_format_is_used():
    assert {name for kind in PROBLEMS.values() for name in kind.readers} == set(formats.FORMATS)


def _labels(example):
    if hasattr(example, 'tags'):
        return example.tags
    if hasattr(example, 'relations'):
        return example.relations
    if hasattr(example, 'spans'):
        return [span.label for span in example.spans]
    label = getattr(example, 'label', None)
    if isinstance(label, tuple):
        return [one[0] if isinstance(one, tuple) else one for one in label]
    return [] if label is None or isinstance(label, float) else [label]
