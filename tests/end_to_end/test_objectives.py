"""Every objective through the real command line, stopped half-way and gone on with: the same
parameters bit by bit. All runs share one prepared corpus."""

import json
import math
import shutil

import jax
import numpy as np
import pytest

from bert_jax.objectives import OBJECTIVES
from bert_jax.training import checkpoints
from tests.end_to_end import small

STEPS, HALF = 6, 3
COMMON = {
    'stages.steps': (STEPS,),
    'stages.sequence_length': (32,),
    'stages.batch_size': (8,),
    'stages.accumulation': (1,),
    'stages.max_predictions': (6,),
    'checkpoint.every_steps': HALF,
    'evaluation.every_steps': 1000,
    'evaluation.examples': 16,
    'evaluation.cloze_examples': 1,
    'logging.every_steps': 1,
    'schedule.warmup_steps': 1,
    'objectives.mlm': 0.0,
    'objectives.nsp': 0.0,
}
RUNS = {
    'spans': {
        'objectives.mlm': 1.0,
        'objectives.sbo': 1.0,
        'masking.scheme': 'spans',
        'data.segments': 'single',
        'model.architecture': 'roberta',
        'model.max_position_embeddings': 34,
    },
    'order': {
        'objectives.mlm': 1.0,
        'objectives.sop': 1.0,
        'masking.scheme': 'ngrams',
        'data.segments': 'ordered_pairs',
        'model.architecture': 'albert',
        'model.embedding_size': 16,
    },
    'replaced': {
        'objectives.mlm': 1.0,
        'objectives.nsp': 1.0,
        'objectives.rtd': 50.0,
        'masking.scheme': 'whole_words',
    },
    'disentangled': {
        'objectives.mlm': 1.0,
        'objectives.rtd': 50.0,
        'rtd.sharing': 'disentangled',
        'rtd.generator_width': 1.0,
        'data.segments': 'single',
        'model.architecture': 'modernbert',
        'model.num_layers': 2,
    },
    'causal': {'objectives.clm': 1.0, 'data.segments': 'single'},
    'edited': {
        'objectives.permutation': 1.0,
        'objectives.deletion': 1.0,
        'objectives.insertion': 1.0,
        'objectives.substitution': 1.0,
        'data.segments': 'single',
    },
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('objectives')


def run(folder, name):
    workdir = folder / name
    keys = COMMON | {'workdir': str(workdir)} | RUNS[name]
    status, stderr = small.run(folder, *(f'--config.{key}={value}' for key, value in keys.items()))
    assert status == 0, stderr
    arrays = checkpoints.load(workdir).state
    results = json.loads((workdir / 'results.json').read_text())
    assert results['steps'] == STEPS
    leaves = jax.tree.leaves_with_path(arrays)
    return results['held_out'], {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def test_every_objective_is_run_here():
    given = {key.removeprefix('objectives.') for keys in RUNS.values() for key in keys}
    assert set(OBJECTIVES) <= given


@pytest.mark.slow
@pytest.mark.parametrize('name', RUNS)
def test_an_objective_trains_and_resumes_bitwise(name, folder):
    held_out, whole = run(folder, name)
    for key, value in RUNS[name].items():
        objective = key.removeprefix('objectives.')
        if objective != key and value:
            assert 0 < held_out[f'{objective}_loss'] < 8
            assert math.isfinite(held_out[f'{objective}_accuracy'])
    shutil.rmtree(folder / name / 'checkpoints' / str(STEPS))
    held_out_again, resumed = run(folder, name)
    assert held_out_again == held_out
    assert whole.keys() == resumed.keys()
    for leaf in whole:
        np.testing.assert_array_equal(whole[leaf], resumed[leaf], err_msg=leaf)
    records = map(json.loads, (folder / name / 'metrics.jsonl').read_text().splitlines())
    steps = [record['step'] for record in records if record['kind'] == 'train']
    assert steps == list(range(1, STEPS + 1))
