"""Every objective through the command line: trains on two languages and resumes bit for bit.

The runs of a tokenizer share one prepared corpus.
"""

import json
import math
import signal

import numpy as np
import pytest

from bert_jax import tree_paths
from bert_jax.loaded import checkpoint_arrays
from bert_jax.objectives import OBJECTIVES
from bert_jax.tasks.pretraining.sources import SEGMENTS
from tests.end_to_end import small

STEPS, SAVED, KILLED = 6, 3, 5
LANGUAGES = {'aa': 60, 'bb': 15}  # documents
COMMON = {
    'data.language_alpha': 0.3,
    'training.steps': (STEPS,),
    'training.sequence_length': (32,),
    'training.batch_size': (8,),
    'training.accumulation': (1,),
    'training.max_predictions': (6,),
    'checkpoint.every_steps': SAVED,
    'evaluation.every_steps': 1000,
    'evaluation.examples': 16,
    'evaluation.cloze_examples': 0,
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
        'data.pack': True,
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
        'data.segments': 'pairs',
        'data.pack': True,
    },
    'disentangled': {
        'objectives.mlm': 1.0,
        'objectives.rtd': 50.0,
        'rtd.sharing': 'disentangled',
        'rtd.generator_width': 1.0,
        'data.segments': 'full_sentences',
        'model.architecture': 'modernbert',
        'model.num_layers': 2,
    },
    'causal': {'objectives.clm': 1.0, 'data.segments': 'doc_sentences'},
    'both_directions': {
        'objectives.bilm': 1.0,
        'data.segments': 'single',
        'data.pack': True,
        'model.architecture': 'elmo',
        'model.num_heads': None,
        'model.attention_dropout': None,
    },
    'permuted': {
        'objectives.plm': 1.0,
        'plm.block_size': 8,
        'masking.scheme': 'spaced_ngrams',
        'data.segments': 'pairs',
        'data.tokenizer': 'train:xlnet:90',
        'model.architecture': 'xlnet',
    },
    'diffused': {
        'objectives.diffusion': 1.0,
        'data.segments': 'single',
        'training.max_predictions': (32,),
    },
    'hybrid': {
        'objectives.mntp': 0.75,
        'objectives.ntp': 0.25,
        'mntp.causal_share': 0.25,
        'data.segments': 'single',
        'training.max_predictions': (32,),
        'model.architecture': 'neobert',
        'model.prediction.shift': True,
    },
    'denoised': {
        'objectives.denoising': 1.0,
        'data.segments': 'full_sentences',
        'data.tokenizer': 'train:bytebpe:300',
        'training.max_predictions': (32,),
        'model.architecture': 'bart',
        'model.decoder.num_layers': 1,
        'model.max_position_embeddings': 34,
    },
    'edited': {
        'objectives.permutation': 1.0,
        'objectives.deletion': 1.0,
        'objectives.insertion': 1.0,
        'objectives.substitution': 1.0,
        'data.segments': 'two_segments',
    },
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('objectives')


def arguments(folder, name, workdir):
    sources = []
    for seed, (language, documents) in enumerate(LANGUAGES.items()):
        (folder / language).mkdir(exist_ok=True)
        source = small.write_text(folder / language, documents, seed)
        sources.append(f'{source};language={language}')
    keys = COMMON | {'data.sources': tuple(sources), 'workdir': str(workdir)} | RUNS[name]
    if 'data.tokenizer' in RUNS[name]:
        keys['data.corpus'] = folder / f'{name}_corpus'
    return [f'--config.{key}={value}' for key, value in keys.items()]


def outcome(workdir):
    """Return the held-out metrics, the arrays of the last checkpoint by name, and all losses."""
    results = json.loads((workdir / 'results.json').read_text())
    assert results['steps'] == STEPS
    arrays = tree_paths.flatten(checkpoint_arrays.load(workdir).state)
    records = map(json.loads, (workdir / 'metrics.jsonl').read_text().splitlines())
    losses = [(record['step'], record['loss']) for record in records if record['kind'] == 'train']
    return results['held_out'], arrays, losses


def test_the_runs_cover_every_objective_and_kind_of_segments():
    given = {key.removeprefix('objectives.') for keys in RUNS.values() for key in keys}
    assert set(OBJECTIVES) <= given
    assert {keys['data.segments'] for keys in RUNS.values()} == SEGMENTS.keys()
    assert any(keys.get('data.pack') for keys in RUNS.values())


@pytest.mark.slow
@pytest.mark.parametrize('name', RUNS)
def test_objectives_train_and_resume_bit_for_bit(name, folder):
    whole, killed = folder / name, folder / f'{name}_killed'
    status, stderr = small.run_alone(folder, *arguments(folder, name, whole))
    assert status == 0, stderr
    held_out, arrays, losses = outcome(whole)
    assert [step for step, _ in losses] == list(range(1, STEPS + 1))
    for key, value in RUNS[name].items():
        objective = key.removeprefix('objectives.')
        if objective != key and value:
            assert 0 < held_out[f'{objective}_loss'] < 8
            assert math.isfinite(held_out[f'{objective}_accuracy'])
            for language in LANGUAGES:
                assert held_out[f'{objective}_loss/{language}'] > 0
    status, stderr = small.run_alone(folder, *arguments(folder, name, killed), die_at=KILLED)
    assert status == -signal.SIGKILL, stderr
    assert not (killed / 'results.json').exists()
    status, stderr = small.run_alone(folder, *arguments(folder, name, killed))
    assert status == 0, stderr
    assert f'resuming from step {SAVED}' in stderr
    held_out_again, resumed, losses_again = outcome(killed)
    assert held_out_again == held_out
    assert losses_again == losses
    assert arrays.keys() == resumed.keys()
    for leaf in arrays:
        np.testing.assert_array_equal(arrays[leaf], resumed[leaf], err_msg=leaf)
