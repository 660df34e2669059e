"""debug.batch prints the batch of a training step."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import main
from bert_jax.averages import Term
from bert_jax.errors import UserError
from bert_jax.tasks.finetuning import builder as finetuning_builder
from bert_jax.tasks.finetuning.task import FineTuning
from bert_jax.tasks.pretraining import builder as pretraining_builder
from bert_jax.training import optimizers
from bert_jax.training.state import TrainState
from bert_jax.training.step import make_train_step
from configs import finetune
from tests.end_to_end import small


@pytest.fixture
def config(tmp_path):
    changed = {'training__steps': (3, 2), 'schedule__warmup_steps': 1, 'evaluation__examples': 16}
    return small.config(tmp_path, evaluation__cloze_examples=0, **changed)


class Spy:
    """A model that records the ids it is given, and an objective whose loss is a parameter."""

    def apply(self, variables, rows, seeds_B):
        self.input_ids = np.asarray(rows.input_ids_BT)
        return variables['params']['x']

    def terms(self, output, clean):
        return dict.fromkeys(('mlm_loss', 'nsp_loss'), Term(output, jnp.ones(())))


def rows_of(capsys) -> list[dict]:
    lines = capsys.readouterr().out.splitlines()
    return [json.loads(line) for line in lines if line.startswith('{')]


def test_the_printed_batch_is_the_one_the_step_trains_on(config, capsys):
    config.debug.batch = 4
    assert main.run(config) is None
    rows = rows_of(capsys)
    assert len(rows) == 8
    spy = Spy()
    task = dataclasses.replace(
        pretraining_builder.build(config), model=spy, objectives={'spy': spy}
    )
    zero, params = jnp.zeros((), jnp.int32), {'x': jnp.ones(())}
    optimizer = optimizers.build(config.optimizer, lambda step: 0.0)
    step = make_train_step(task, optimizer)
    batch = task.stages[1].source.batch(0)  # step 4 is the first step of the second stage
    state = TrainState(zero + 3, zero, zero, params, optimizer.init(params))
    step(state, batch, jax.random.key(config.seed))
    vocab = task.corpus.tokenizer.vocab
    for row, ids, index in zip(rows, spy.input_ids, batch['example_index'], strict=True):
        given = row.get('shown', row['tokens'])
        assert row['example_index'] == index
        assert given == [vocab[i] for i in ids[: len(given)]]
        assert [row['tokens'][i] for i in row['masked_positions']] == row['labels']
        assert row['labels']
        changed = {i for i, token in enumerate(given) if token != row['tokens'][i]}
        assert changed <= set(row['masked_positions'])
        assert row['next_sentence_label'] in (0, 1)
    assert any('[MASK]' in row.get('shown', ()) for row in rows)


def test_a_step_outside_the_run_is_rejected(config):
    config.debug.batch = 6
    with pytest.raises(UserError, match='debug.batch is 6, but the run has steps 1 to 5'):
        main.run(config)


def test_edited_rows_are_printed_with_their_labels(config, capsys):
    config.objectives.mlm, config.objectives.nsp, config.objectives.deletion = 0.0, 0.0, 1.0
    config.debug.batch = 1
    main.run(config)
    rows = rows_of(capsys)
    assert any(len(row.get('shown', row['tokens'])) < len(row['tokens']) for row in rows)
    for row in rows:
        assert len(row['deletion']) == len(row.get('shown', row['tokens']))
        lost = [token for token in row['deletion'] if token]  # the first of each gap
        assert set(lost) <= set(row['tokens'])
        assert bool(lost) == ('shown' in row)


def test_packed_rows_are_printed_with_the_label_and_the_start_of_each_example(config, capsys):
    config.data.pack, config.data.short_sequence_probability = True, 0.9
    config.debug.batch = 4  # in the stage with sequences of 32 tokens
    main.run(config)
    rows = rows_of(capsys)
    assert max(len(row['first_positions']) for row in rows) > 1
    for row in rows:
        assert len(row['next_sentence_label']) == len(row['first_positions'])
        assert [row['tokens'][first] for first in row['first_positions']] == [
            token for token in row['tokens'] if token == '[CLS]'
        ]
        assert row['text'].startswith('[CLS]')


def fine_tuning_rows(name, capsys) -> tuple[FineTuning, list[dict]]:
    """The task and the sequences of the first batch of a sample."""
    config = finetune.get_config(name)
    config.data.tokenizer, config.debug.batch = 'train:wordpiece:400', 1
    sizes = dict(hidden_size=8, num_layers=1, num_heads=1, intermediate_size=8)
    config.model.update(architecture='bert', **sizes)
    main.run(config)
    task = finetuning_builder.build(config)
    return task, [sequence for row in rows_of(capsys) for sequence in row['sequences']]


def target(task, sequence, name):
    """The values of a target that the train split has for the text of a sequence."""
    clean = lambda text: ''.join(text.lower().split())  # noqa: E731
    shown = clean(sequence['text'].replace('[CLS]', '').replace('[SEP]', ''))
    return [
        getattr(example, name)
        for example in task.splits.train
        if clean(''.join(getattr(example, 'texts', None) or [example.text])) == shown
    ]


@pytest.mark.parametrize('name', ['sentiment', 'pairs', 'relation', 'wic', 'coreference'])
def test_classes_are_printed_by_name(name, capsys):
    task, sequences = fine_tuning_rows(f'sample_{name}', capsys)
    assert len(sequences) == task.config.training.batch_size
    for sequence in sequences:
        assert sequence['label'] in target(task, sequence, 'label')
        if 'marks' in sequence:
            marks = [''.join(mark).replace('##', '') for mark in sequence['marks']]
            texts = sequence['text'].lower().replace(' ', '')
            assert all(mark and mark in texts for mark in marks)


def test_tags_are_printed_at_the_tokens_that_learn_them(capsys):
    task, sequences = fine_tuning_rows('sample_entities', capsys)
    for sequence in sequences:
        assert len(sequence['tags']) == len(sequence['tokens'])
        tags = tuple(tag for tag in sequence['tags'] if tag)
        assert tags in target(task, sequence, 'tags')


def test_spans_are_printed_with_their_tokens(capsys):
    task, sequences = fine_tuning_rows('sample_spans', capsys)
    assert any(sequence['spans'] for sequence in sequences)
    for sequence in sequences:
        found = {(label, ''.join(tokens).replace('##', '')) for label, *tokens in sequence['spans']}
        assert found in [
            {
                (span.label, example.text[span.start : span.end].lower().replace(' ', ''))
                for span in example.spans
            }
            for example in task.splits.train
        ]


def test_answers_numbers_and_choices_are_printed(capsys):
    task, sequences = fine_tuning_rows('sample_questions', capsys)
    golds = {
        answer.text.lower().replace(' ', '')
        for example in task.splits.train
        for answer in example.answers
    }
    shown = {''.join(own['answer']).replace('##', '') for own in sequences}
    assert shown & golds
    assert shown - golds <= {'[CLS]'}  # the answer is in another window
    task, sequences = fine_tuning_rows('sample_similarity', capsys)
    for sequence in sequences:
        assert np.float32(sequence['target']) in map(np.float32, target(task, sequence, 'label'))
    _, sequences = fine_tuning_rows('sample_choice', capsys)
    assert {(own['place'], own['correct']) for own in sequences} <= {(0, 0), (0, 1), (1, 0), (1, 1)}
