"""Evaluation on held-out text: possible before training starts, and in micro-batches."""

import importlib
import pathlib

import flax.linen as nn
import jax
import numpy as np
import pytest

import configs
from bert_jax.errors import UserError
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.training import sharding
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
    task = Pretraining(languages(tmp_path, **documents))
    for language in documents:
        assert task.corpus.split('held_out', language).num_documents >= 2


def test_a_language_that_cannot_be_evaluated_is_named_before_training(tmp_path):
    config = languages(tmp_path, en=60, cy=3)
    with pytest.raises(UserError, match=r"held-out text in language 'cy' .*has 1 document\(s\)"):
        Pretraining(config)
    config.objectives.nsp = 0.0
    config.data.segments = 'single'
    Pretraining(config)


@pytest.mark.parametrize('documents', [3, 10])
@pytest.mark.parametrize('recipe', RECIPES)
def test_every_recipe_can_evaluate_a_tiny_text_or_says_so_before_training(
    recipe, documents, tmp_path
):
    shrunk = languages(tmp_path, en=documents, cy=documents)
    config = importlib.import_module(f'configs.{recipe}').get_config()
    kind = config.data.tokenizer.split(':')[1]
    config.data.update(sources=shrunk.data.sources, corpus=shrunk.data.corpus, prepare_workers=0)
    config.data.tokenizer = f'train:{kind}:{300 if kind == "bytebpe" else 120}'
    config.model.update(hidden_size=8, num_layers=1, num_heads=1, intermediate_size=8)
    if config.data.segments == 'pairs' and documents == 3:  # one of them is held out
        with pytest.raises(UserError, match="the held-out text in language 'en' cannot be"):
            Pretraining(config)
        return
    task = Pretraining(config)
    for sources in task._held_out.values():
        assert set(sources) == {None, 'en', 'cy'}
        for source in sources.values():
            assert source.batch(0, np.arange(2))['attention_mask'].any(axis=1).all()


@pytest.mark.usefixtures('eight_devices')
def test_evaluation_in_micro_batches_gives_the_same_metrics_in_less_memory(tmp_path):
    mesh = sharding.make_mesh({'data': 2, 'fsdp': 1, 'tensor': 4})
    found, sizes = [], []
    for accumulation in (1, 4):
        config = small.config(
            tmp_path, training__accumulation=(accumulation,), training__batch_size=(16, 8)
        )
        task = Pretraining(config)
        with jax.set_mesh(mesh), nn.logical_axis_rules(config.sharding_rules):
            params = jax.tree.map(
                lambda leaf: 3 * leaf, sharding.unbox(jax.jit(task.init)(jax.random.key(0)))
            )
            compiled = task.compile_evaluation(params, task.stages[1])
            found.append(task.evaluate(params, task.stages[1]))
        sizes.append(compiled.memory_analysis().temp_size_in_bytes)
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        assert found[1][name] == pytest.approx(value, rel=1e-5), name
    assert found[0]['mlm_loss'] > 6  # more than uniform over the vocabulary
    assert sizes[1] < 0.6 * sizes[0]
