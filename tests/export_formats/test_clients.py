"""Other programs open exported folders as they lie, each in an environment of its own.

BERT_JAX_CLIENTS is the folder of the environments (experiments/compatibility/clients/table.py).
What their folders must have is tested quickly in test_onnx.py, test_folders.py and
tests/interop/test_other_programs.py.
"""

import os
import pathlib

import numpy as np
import pytest

from experiments.compatibility.clients import kinds, table

pytestmark = pytest.mark.slow
# keras-hub has the tanh approximation of GELU, whatever the config says.
_LIMITS = {'keras_hub': 2e-2}


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    return tmp_path_factory.mktemp('clients')


@pytest.mark.parametrize('name', sorted(table.CLIENTS))
def test_a_client_computes_what_we_do(name, folders):
    """Every kind of model that the client opens, within 1e-5 of the largest value."""
    environment = pathlib.Path(os.environ.get('BERT_JAX_CLIENTS', '/nonexistent')) / name
    if not environment.exists():
        pytest.skip(f'BERT_JAX_CLIENTS has no {name}: {" ".join(table.CLIENTS[name].packages)}')
    client = table.CLIENTS[name]
    for kind in client.opens:
        folder = table.exported(kind, client.format_name, folders)
        assert isinstance(folder, pathlib.Path), folder
        cell = table.run(name, folder, environment)
        assert cell.difference is not None, (kind, cell.error)
        assert cell.difference <= _LIMITS.get(name, 1e-5) * max(1, cell.largest), (kind, cell)


def test_a_difference_is_found(tmp_path):
    """The comparison itself: of the tokens, without padding, of the worst output."""
    folder = table.exported('tagger', 'onnx', tmp_path)
    samples = dict(np.load(folder / 'samples.npz'))
    outputs = {name: samples[f'expected_{name}'] for name in ('logits', 'probabilities')}
    assert table.compare(outputs, folder).difference == 0
    changed = outputs['logits'].copy()
    changed[1, 0, 2] += 0.5
    assert table.compare(outputs | {'logits': changed}, folder).difference == pytest.approx(0.5)
    assert table.compare({}, folder).error == 'no output of the folder'
    assert {*kinds.KINDS} >= {kind for client in table.CLIENTS.values() for kind in client.opens}
