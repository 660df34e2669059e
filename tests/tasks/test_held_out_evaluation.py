"""Evaluation on held-out text: possible before training starts, and in micro-batches."""

import dataclasses
import importlib
import math
import pathlib
import re

import flax.linen as nn
import jax
import numpy as np
import pytest
from flax import traverse_util

import configs
from bert_jax import main, progress
from bert_jax.errors import UserError
from bert_jax.examples.example_source import blank_rows
from bert_jax.models import initial_values
from bert_jax.models.rows import Rows
from bert_jax.objectives.edits import EDITS
from bert_jax.reports import pretraining as reports
from bert_jax.tasks.pretraining import builder
from bert_jax.tasks.pretraining import task as pretraining
from bert_jax.training import loop, sharding
from bert_jax.training.workdir import Workdir
from tests.end_to_end import small

RECIPES = sorted(
    path.stem
    for path in pathlib.Path(configs.__file__).parent.glob('*.py')
    if not path.stem.startswith(('_', 'finetune'))
)


def languages(folder, **documents):
    """A config whose text has this number of documents in each language."""
    sources = []
    for seed, (language, number) in enumerate(documents.items()):
        (folder / language).mkdir()
        source = small.write_text(folder / language, number, seed)
        sources.append(f'{source};language={language}')
    return small.config(folder, data__sources=tuple(sources), data__held_out_fraction=0.005)


@pytest.mark.parametrize('documents', [{'en': 60}, {'en': 60, 'cy': 40, 'gd': 4}])
def test_small_texts_can_be_evaluated_with_next_sentence_prediction(tmp_path, documents):
    """At a fraction of 0.005, 60 documents had a held-out split of 1 that ended the run."""
    task = builder.build(languages(tmp_path, **documents))
    for language in documents:
        assert task.corpus.split('held_out', language).num_documents >= 2


def test_a_language_that_cannot_be_evaluated_is_named_before_training(tmp_path):
    config = languages(tmp_path, en=60, cy=3)
    with pytest.raises(UserError, match=r"held-out text in language 'cy' .*has 1 document\(s\)"):
        builder.build(config)
    config.objectives.nsp = 0.0
    config.data.segments = 'single'
    builder.build(config)


TOKENS = {'mbart': ':languages=en,cy:cls=no', 't5': ':sentinels=28:cls=no'}


@pytest.mark.parametrize('documents', [3, 10])
@pytest.mark.parametrize('recipe', RECIPES)
def test_every_recipe_can_evaluate_a_tiny_text_or_says_so_before_training(
    recipe, documents, tmp_path
):
    shrunk = languages(tmp_path, en=documents, cy=documents)
    config = importlib.import_module(f'configs.{recipe}').get_config()
    kind = config.data.tokenizer.split(':')[1]
    config.data.update(sources=shrunk.data.sources, corpus=shrunk.data.corpus, prepare_workers=0)
    size = 300 if kind == 'bytebpe' else 120
    config.data.tokenizer = f'train:{kind}:{size}{TOKENS.get(recipe, "")}'
    config.model.update(hidden_size=8, num_layers=1, intermediate_size=8)
    if recipe != 'elmo':  # it has no attention
        config.model.num_heads = 1
    if config.data.segments == 'pairs' and documents == 3:  # one of them is held out
        with pytest.raises(UserError, match="the held-out text in language 'en' cannot be"):
            builder.build(config)
        return
    task = builder.build(config)
    for sources in task.held_out.values():
        assert set(sources) == {None, 'en', 'cy'}
        for source in sources.values():
            assert source.batch(0, np.arange(2))['attention_mask'].any(axis=1).all()


@pytest.mark.eight_devices
def test_evaluation_in_micro_batches_gives_the_same_metrics_in_less_memory(tmp_path):
    mesh = sharding.make_mesh({'data': 2, 'fsdp': 1, 'tensor': 4})
    found, sizes = [], []
    for accumulation in (1, 4):
        config = small.config(
            tmp_path, training__accumulation=(accumulation,), training__batch_size=(16, 8)
        )
        task = builder.build(config)
        with jax.set_mesh(mesh), nn.logical_axis_rules(config.sharding_rules):
            params = jax.tree.map(
                lambda leaf: 3 * leaf, sharding.unbox(jax.jit(task.init)(jax.random.key(0)))
            )
            compiled = task.lower_evaluation(params, task.stages[1]).compile()
            found.append(task.evaluate(params, task.stages[1]))
        sizes.append(compiled.memory_analysis().temp_size_in_bytes)
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        assert found[1][name] == pytest.approx(value, rel=1e-5), name
    assert found[0]['mlm_loss'] > 6  # more than uniform over the vocabulary
    assert sizes[1] < 0.6 * sizes[0]


def evaluated(folder, batch_size, mesh=None, **more):
    """The metrics of the same large parameters on the same held-out text."""
    config = small.config(
        folder,
        **small.ONE_STAGE
        | {'training__batch_size': (batch_size,), 'evaluation__examples': 10_000, **more},
    )
    task = builder.build(config)
    sizes = mesh or {'data': 1, 'fsdp': 1, 'tensor': 1}
    mesh = sharding.make_mesh(sizes, jax.devices()[: math.prod(sizes.values())])
    with jax.set_mesh(mesh), nn.logical_axis_rules(config.sharding_rules):
        params = large_parameters(task)
        return task.evaluate(params, task.stages[0]), task.held_out[batch_size, 16][None]


def large_parameters(task):
    params = traverse_util.unflatten_dict(initial_values.draw(task.init, 0), sep='/')
    return jax.tree.map(lambda leaf: 5 * leaf, params)


@pytest.mark.parametrize('pack', [False, True])
def test_every_held_out_example_counts_once_whatever_the_size_of_a_batch(tmp_path, pack):
    """The last batch was dropped: 64 examples gave 4.7197 in batches of 16, 4.7107 in 40."""
    one, source = evaluated(tmp_path, 1, data__pack=pack)
    assert source.num_examples > 16
    for batch_size in (16, 1000):
        metrics, _ = evaluated(tmp_path, batch_size, data__pack=pack)
        assert metrics == pytest.approx(one, rel=1e-5), batch_size


@pytest.mark.eight_devices
def test_every_held_out_example_counts_once_on_several_devices(tmp_path):
    one, _ = evaluated(tmp_path, 1)
    mesh = {'data': 2, 'fsdp': 2, 'tensor': 2}
    metrics, _ = evaluated(tmp_path, 48, mesh, training__accumulation=(2,))
    assert metrics == pytest.approx(one, rel=1e-5)


OBJECTIVES = {
    'mlm and sop': {'objectives__sop': 1.0, 'data__segments': 'ordered_pairs'},
    'clm': {'objectives__mlm': 0.0, 'objectives__clm': 1.0},
    'rtd': {'objectives__rtd': 50.0},
    'sbo': {'objectives__sbo': 1.0, 'masking__scheme': 'spans'},
    'edits': {'objectives__mlm': 0.0, **{f'objectives__{name}': 1.0 for name in EDITS}},
    'disentangled': {'model__architecture': 'deberta_v3_small'},
    'windows': {'model__architecture': 'modernbert_base'},
}


@pytest.mark.parametrize('name', OBJECTIVES)
def test_rows_without_tokens_count_for_nothing(tmp_path, name):
    changes = {'objectives__nsp': 0.0, 'data__segments': 'single', **OBJECTIVES[name]}
    if 'model__architecture' in changes:
        changes |= {'model__max_position_embeddings': 64}
    task = builder.build(small.config(tmp_path, **small.ONE_STAGE | changes))
    batch = task.stages[0].source.batch(0, np.arange(6))
    is_blank = np.arange(6) >= 4
    terms = jax.jit(lambda *arguments: task.terms(*arguments, train=False))
    params, key = large_parameters(task), jax.random.key(1)
    expected = terms(params, {name: array[:4] for name, array in batch.items()}, key)
    found = terms(params, blank_rows(batch, is_blank), key)
    for name, term in expected.items():
        assert term.count > 0 or name.startswith('sbo')
        np.testing.assert_allclose(found[name], term, rtol=2e-5, err_msg=name)


def test_terms_without_a_prediction_are_left_out_of_the_metrics(tmp_path):
    task = builder.build(small.config(tmp_path, **small.ONE_STAGE))
    stage = task.stages[0]
    vocabulary = dataclasses.replace(
        task.corruption.vocabulary, special_ids=tuple(range(task.start.architecture.vocab_size))
    )
    corruption = dataclasses.replace(task.corruption, vocabulary=vocabulary)
    task = dataclasses.replace(task, corruption=corruption)
    with jax.set_mesh(sharding.make_mesh(task.config.mesh)):
        metrics = task.evaluate(large_parameters(task), stage)
    assert metrics['mlm_empty'] == 1
    assert metrics['nsp_loss'] > 0
    assert not {'mlm_loss', 'mlm_accuracy', 'mlm_perplexity'} & metrics.keys()


def test_a_stage_without_anything_to_predict_is_refused_before_training(tmp_path):
    """All losses were 0 / 0, reported as loss 0 and perplexity 1."""
    config = small.config(tmp_path, **small.ONE_STAGE, objectives__nsp=0.0, data__segments='single')
    path = tmp_path / 'text.txt'
    path.write_text('\n\n'.join(f'{chr(0x4E00 + n)} ' * 30 for n in range(60)), encoding='utf-8')
    vocab = tmp_path / 'vocab.txt'
    vocab.write_text('[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\n')
    config.data.tokenizer = str(vocab)
    config.masking.unknown = False
    with pytest.raises(UserError, match='no row has a prediction for mlm_loss, in 2 batches of 16'):
        loop.train(builder.build(config), config, Workdir.of(config.workdir))
    assert not list(tmp_path.glob('run/checkpoints/[0-9]*'))


def test_an_evaluation_with_more_rows_than_the_training_says_so(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(progress, 'EVALUATION_SECONDS', 1e-4)
    monkeypatch.setattr(progress, 'SECONDS_BETWEEN_LINES', 0.0)
    main.run(small.config(tmp_path, **small.ONE_STAGE | {'training__batch_size': (8,)}))
    shown = capsys.readouterr().err
    assert 'an evaluation reads 32 rows, more than the 16 rows that are trained on' in shown
    assert '--config.evaluation.examples=16' in shown
    assert re.search(r'evaluating: +\d+%.* \d+/32 \[', shown)


def measured(folder, **keys):
    """The held-out metrics of fixed parameters, and the task."""
    config = small.config(folder, **small.ONE_STAGE, **keys)
    task = builder.build(config)
    with jax.set_mesh(sharding.make_mesh(config.mesh)):
        return task.evaluate(large_parameters(task), task.stages[0]), task


def test_frequencies_are_those_of_the_tokens_that_are_hidden(tmp_path):
    metrics, task = measured(tmp_path)
    first = task._held_out_rows(task.stages[0])[None]
    counts_V = np.zeros(task.start.architecture.vocab_size)
    for number in range(first.num_batches):
        clean = Rows.of(first.batch(number))
        keys_B, _ = pretraining._example_keys(jax.random.key(pretraining.HELD_OUT_SEED), clean)
        _, ids_BP, weights_BP = jax.device_get(task.corruption(keys_B, clean).chosen)
        np.add.at(counts_V, ids_BP[weights_BP > 0], 1)
    assert metrics['unigram_entropy'] == pytest.approx(reports.unigram_entropy(counts_V), rel=1e-5)
    assert metrics['mlm_majority'] == pytest.approx(counts_V.max() / counts_V.sum(), rel=1e-5)


def test_the_first_metric_is_the_loss_as_in_training(tmp_path):
    metrics, task = measured(tmp_path, objectives__nsp=0.5)
    assert next(iter(metrics)) == 'loss'
    assert metrics['loss'] == pytest.approx(metrics['mlm_loss'] + 0.5 * metrics['nsp_loss'])


def test_held_out_masks_of_a_named_scheme_are_the_same_in_all_runs(tmp_path):
    named = {'evaluation__masking_scheme': 'tokens', 'evaluation__masking_rate': 0.15}
    own = measured(tmp_path)[0]
    other = {'masking__scheme': 'whole_words', 'masking__rate': 0.1}
    assert measured(tmp_path, **other)[0]['mlm_loss'] != own['mlm_loss']
    metrics, task = measured(tmp_path, **other, **named)
    assert metrics == own
    assert 'held-out masks: tokens, rate 0.15' in task.describe()


@pytest.mark.parametrize(
    ('keys', 'message'),
    [
        ({'evaluation__masking_scheme': 'adaptive'}, 'whose masks depend on the run'),
        ({'evaluation__masking_rate': 0.9}, 'chooses .* tokens'),
    ],
)
def test_held_out_masks_that_cannot_be_drawn_are_refused(tmp_path, keys, message):
    with pytest.raises(UserError, match=message):
        builder.build(small.config(tmp_path, **small.ONE_STAGE, **keys))
