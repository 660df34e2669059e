"""Fine-tuning a generator: training, beams, prediction, resuming, copy and reversal."""

import dataclasses
import json
import random
import types

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax import main, predict
from bert_jax.errors import UserError
from bert_jax.loaded import checkpoint_arrays
from bert_jax.models import architectures
from bert_jax.models.architecture_parts import DecoderStack
from bert_jax.models.architectures.bart import BART
from bert_jax.models.architectures.builder import Builder
from bert_jax.models.tuning.prompt import PromptTuning
from bert_jax.tasks import attention_direction
from configs import finetune
from tests.end_to_end import commands

LETTERS = 'abcdefgh'
SMALL = {
    'data.tokenizer': 'train:wordpiece:40',
    'model.architecture': 'gpt2',
    'model.hidden_size': 32,
    'model.num_layers': 1,
    'model.num_heads': 2,
    'model.intermediate_size': 64,
    'model.max_position_embeddings': 32,
    'model.hidden_dropout': 0.0,
    'model.attention_dropout': 0.0,
    'problem.metrics': ('exact_match',),
    'problem.target_tokens': 8,
    'training.epochs': 0.0,
    'training.steps': 30,
    'training.batch_size': 16,
    'training.sequence_length': 32,
    'schedule.learning_rate': 1e-2,
    'evaluation.every_steps': 0,
    'logging.every_steps': 10,
}


def write_data(path, number: int, longest: int, reverse: bool, shortest: int = 1):
    rng, lines = random.Random(number), ['text\ttarget']
    for _ in range(number):
        letters = rng.choices(LETTERS, k=rng.randint(shortest, longest))
        target = letters[::-1] if reverse else letters
        lines.append(f'{" ".join(letters)}\t{" ".join(target)}')
    path.write_text('\n'.join(lines) + '\n', encoding='utf-8')
    return (str(path),)


def keys(folder, number=60, longest=3, reverse=False, **more) -> dict:
    folder.mkdir(exist_ok=True)
    return SMALL | {
        'workdir': str(folder / 'run'),
        'data.train': write_data(folder / 'train.tsv', number, longest, reverse),
        'data.dev': write_data(folder / 'dev.tsv', 25, longest, reverse),
        **{key.replace('__', '.'): value for key, value in more.items()},
    }


def train(folder, **more):
    config = finetune.get_config('generation').unlock()
    config.update_from_flattened_dict(keys(folder, **more))
    return main.run(config.lock())


def lines_of(path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """The folder of a run that learns to copy one letter or two."""
    folder = tmp_path_factory.mktemp('copy')
    train(folder, longest=2, problem__label_smoothing=0.1, problem__beams=2)
    return folder


def test_a_causal_model_learns_targets_and_is_scored_on_what_it_writes(folder):
    results = json.loads((folder / 'run/results.json').read_text())
    held_out = results['held_out']
    assert next(iter(held_out)) == 'exact_match'
    assert held_out['generation_loss'] < 2  # 2.9 nats for the tokens at random
    records = lines_of(folder / 'run/dev/predictions.jsonl')
    right = sum(one['written'] in one['gold'] for one in records) / len(records)
    assert held_out['exact_match'] == pytest.approx(right)
    assert right > 0.1
    saved = json.loads((folder / 'run/dev/metrics.json').read_text())
    assert saved['baseline']['exact_match'] == 1.0  # the source, which is the target
    card = (folder / 'run/README.md').read_text()
    assert 'pipeline_tag: "text2text-generation"' in card


def test_new_texts_are_written_as_in_the_evaluation(folder):
    records = lines_of(folder / 'run/dev/predictions.jsonl')
    (folder / 'new.txt').write_text(''.join(f'{one["texts"][0]}\n' for one in records))
    arguments = [f'--model={folder}/run', '--task=write', f'--input={folder}/new.txt']
    predict.main([*arguments, f'--output={folder}/out.jsonl', '--overwrite'])
    written = lines_of(folder / 'out.jsonl')
    assert [one['written'] for one in written] == [one['written'] for one in records]
    assert written[0]['log_probability'] == pytest.approx(records[0]['log_probability'], abs=1e-4)
    predict.main(
        [*arguments, f'--output={folder}/out.jsonl', '--overwrite', '--beams=1', '--new_tokens=2']
    )
    shorter = lines_of(folder / 'out.jsonl')
    assert all(len(one['written'].split()) <= 2 for one in shorter)


LANGUAGES = {
    'data__tokenizer': 'train:unigram:40:languages=cy,en:cls=no',
    'problem__source_language': 'cy',
    'problem__target_language': 'en',
}


@pytest.mark.slow  # test_decoder_tuning.py trains a smaller one; tests/problems learns targets
@pytest.mark.parametrize(
    ('start', 'more'), [('sep', {}), ('language', LANGUAGES)], ids=['bart', 'mbart']
)
def test_a_model_with_a_decoder_learns_and_writes(tmp_path, monkeypatch, start, more):
    """An architecture in the style of BART; the texts of predict are those of the evaluation."""
    small = Builder(BART.sizes | {'decoder': DecoderStack(1, start)}, BART.fixed)
    monkeypatch.setitem(architectures.BUILDERS, 'small_bart', small)
    results = train(
        tmp_path,
        longest=2,
        training__steps=40,
        evaluation__every_steps=40,
        model__architecture='small_bart',
        model__max_position_embeddings=40,
        **more,
    )
    assert results['held_out']['generation_loss'] < 1.9
    records = lines_of(tmp_path / 'run/dev/predictions.jsonl')
    assert any(one['ended'] for one in records)
    texts = [one['texts'][0] for one in records]
    answers = bert_jax.load(str(tmp_path / 'run')).write(texts)
    assert [one['written'] for one in answers] == [one['written'] for one in records]


def test_an_encoder_cannot_write():
    config, encoder = finetune.get_config('generation'), types.SimpleNamespace(is_causal=False)
    architecture = architectures.build('bert')
    with pytest.raises(UserError, match='generation writes text, but init_from=.* is an encoder'):
        attention_direction.writes_causally(config, architecture, encoder)
    config.problem.target_tokens = 1000
    with pytest.raises(UserError, match='target_tokens is 1000, but the model has 512 positions'):
        attention_direction.writes_causally(config, architecture, None)
    config.problem.target_tokens = 64
    prompted = dataclasses.replace(architectures.build('gpt2'), tuning=PromptTuning())
    with pytest.raises(UserError, match='transfer.method=prompt tunes a prompt, which has no pla'):
        attention_direction.writes_causally(config, prompted, None)


@pytest.mark.slow
def test_weights_of_a_decoder_start_another_run(tmp_path, monkeypatch):
    small = Builder(BART.sizes | {'decoder': DecoderStack(1)}, BART.fixed)
    monkeypatch.setitem(architectures.BUILDERS, 'small_bart', small)
    more = {'model__architecture': 'small_bart', 'model__max_position_embeddings': 40}
    first = train(tmp_path, training__steps=10, **more)
    config = finetune.get_config('generation').unlock()
    given = keys(tmp_path / 'second', training__steps=1, schedule__learning_rate=1e-9)
    kept = {
        key: value
        for key, value in given.items()
        if not key.startswith('model.') and key != 'data.tokenizer'
    }
    config.update_from_flattened_dict(kept | {'init_from': str(tmp_path / 'run')})
    second = main.run(config.lock())
    name = 'generation_loss'
    assert second['held_out'][name] == pytest.approx(first['held_out'][name], rel=1e-5)


@pytest.mark.slow
def test_killed_and_resumed_bitwise(tmp_path):
    more = {'model__hidden_dropout': 0.1, 'checkpoint__every_steps': 7, 'training__steps': 20}
    for name, step in (('killed', 17), ('whole', None)):
        arguments = [
            f'--config.{key}={value}' for key, value in keys(tmp_path / name, **more).items()
        ]
        command = ('bert_jax.main', '--config=configs/finetune.py:generation', *arguments)
        killed = commands.run(*command, die_at=step)
        assert (killed.returncode != 0) == (step is not None), killed.stderr
        if step:
            done = commands.run(*command)
            assert 'resuming from step 14' in done.stderr
    ours, theirs = (
        jax.tree.leaves(checkpoint_arrays.load(tmp_path / name / 'run')[1])
        for name in ('killed', 'whole')
    )
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(own, other)


@pytest.mark.slow
@pytest.mark.parametrize('reverse', [False, True])
def test_copy_and_reversal_are_learned(tmp_path, reverse):
    """Exact match of at least 99 % in two minutes on two cores, on texts that are not learned."""
    results = train(
        tmp_path,
        data__dev=write_data(tmp_path / 'long.tsv', 300, 8, reverse, shortest=6),
        number=4000,
        longest=8,
        reverse=reverse,
        model__hidden_size=64,
        model__num_layers=2,
        model__num_heads=4,
        model__intermediate_size=256,
        problem__target_tokens=10,
        training__steps=1500,
        training__batch_size=64,
        schedule__learning_rate=3e-3,
        logging__every_steps=500,
        evaluation__every_steps=1500,
    )
    assert results['held_out']['exact_match'] >= 0.99
