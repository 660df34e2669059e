"""Full sentences and packed rows through the command line, on two devices."""

import json
import math
import re

import pytest

from tests.end_to_end import small

RUNS = {
    'pairs': {'objectives.nsp': 1.0},
    'full_sentences': {'objectives.nsp': 0.0, 'model.architecture': 'roberta'},
    'doc_sentences': {'objectives.nsp': 0.0},
}


@pytest.mark.slow
@pytest.mark.parametrize('segments', RUNS)
def test_packed_and_unpacked_rows_train_on_two_devices(segments, tmp_path):
    changes = RUNS[segments] | {
        'data.segments': segments,
        'data.pack': segments != 'full_sentences',
        'training.steps': (3,),
        'training.sequence_length': (96,),
        'training.batch_size': (16,),
        'training.accumulation': (2,),
        'training.max_predictions': (15,),
        'schedule.warmup_steps': 1,
        'model.max_position_embeddings': 98,
        'objectives.mlm': 1.0,
    }
    arguments = [f'--config.{key}={value}' for key, value in changes.items()]
    devices = '--xla_force_host_platform_device_count=2'
    status, stderr = small.run_alone(tmp_path, *arguments, xla_flags=devices)
    assert status == 0, stderr
    line = next(line for line in stderr.splitlines() if line.startswith('stage 1'))
    examples, rows = (
        int(found[1].replace(',', '')) if found else None
        for found in (
            re.search(rf'([\d,]+) {name} per epoch', line) for name in ('examples', 'rows')
        )
    )
    if changes['data.pack']:
        assert 0 < rows < examples
    else:
        assert rows is None
    held_out = json.loads((tmp_path / 'run/results.json').read_text())['held_out']
    for name, weight in RUNS[segments].items():
        if name == 'objectives.nsp':
            assert ('nsp_loss' in held_out) == (weight > 0)
    assert all(map(math.isfinite, held_out.values()))
