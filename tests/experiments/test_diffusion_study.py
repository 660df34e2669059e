"""The study of masked diffusion: runs of equal time, one of which continues a masked model."""

import argparse
import json
import pathlib

import pytest

from bert_jax import objectives
from experiments.studies.diffusion import run
from experiments.studies.race import run as race

TIMES = {'MLM': [0.2], 'left to right': [0.4], 'diffusion': [0.25]}


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """The keys of each run that a variant trains, by its folder; nothing is trained."""
    found = {}
    monkeypatch.setattr(
        run.runner, 'train', lambda folder, texts, keys: found.update({folder: keys})
    )
    options = argparse.Namespace(minutes=2.0, runs=str(tmp_path), texts='none')
    for name in run.VARIANTS:
        run.train(options, name, TIMES, 1)
    return {folder.name: keys for folder, keys in found.items()}


def test_all_variants_take_the_same_time(trained):
    steps = {name: keys['training.steps'] for name, keys in trained.items()}
    assert steps == {
        'mlm_2min_1': (600,),
        'mlm_1min_1': (300,),
        'mlm_then_diffusion_1min_1': (240,),
        'left_to_right_2min_1': (300,),
    }


def test_masked_diffusion_continues_the_masked_model(trained):
    keys = trained['mlm_then_diffusion_1min_1']
    assert pathlib.Path(keys['init_from']).name == 'mlm_1min_1'
    assert keys['objectives.diffusion'] == 1
    assert {keys[name] for name in keys if name.startswith('model.')} == {None}


def test_the_objectives_are_what_their_names_say():
    found = {
        name: tuple(objectives.enabled(race.config_of(keys, 'novels/*.txt').objectives))
        for name, keys in run.OBJECTIVES.items()
    }
    assert found == {'MLM': ('mlm',), 'left to right': ('clm',), 'diffusion': ('diffusion',)}


def test_a_left_to_right_model_has_a_likelihood_and_no_masked_loss(monkeypatch, tmp_path):
    held_out = {'clm_loss': 5.0, 'clm_bits_per_byte': 1.8, 'unigram_entropy': 6.3}
    (tmp_path / 'results.json').write_text(json.dumps({'steps': 7, 'held_out': held_out}))
    monkeypatch.setattr(run, 'train', lambda *_: tmp_path)
    measured = run.measure(argparse.Namespace(), 'left to right', TIMES, 0)
    assert measured == {'steps': 7, 'nats': 5.0, 'bits_per_byte': 1.8}
