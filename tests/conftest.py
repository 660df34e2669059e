"""Settings of all tests: they see one CPU device, and share one compilation cache.

Machine code is made quickly and runs slowly: little of the time of a test is spent in it. XLA's
older emitters take less than half the time of its fusion emitters.
"""

import gc
import os
import pathlib
import tempfile

os.environ.setdefault('JAX_PLATFORMS', 'cpu')
os.environ.setdefault(
    'XLA_FLAGS',
    '--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0 '
    '--xla_cpu_use_fusion_emitters=false',
)
os.environ.setdefault(
    'JAX_COMPILATION_CACHE_DIR', os.path.join(tempfile.gettempdir(), 'bert_jax_test_cache')
)
os.environ.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0')
os.environ.setdefault('TOKENIZERS_PARALLELISM', 'false')
os.environ.setdefault('OMP_NUM_THREADS', '1')  # threads of PyTorch burn the time of other workers
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')  # for tests that import TensorFlow themselves

import jax
import pytest

from bert_jax.training import state
from tests import op_by_op

DEVICES = {
    name: getattr(jax, name)
    for name in ('devices', 'local_devices', 'device_count', 'local_device_count')
}
COMPUTE = state._compute


# Folders and files that take longest; they start first, so that all workers end together.
LONGEST = ('end_to_end', 'multidevice', 'test_configs.py', 'problems', 'experiments', 'parity')


def pytest_xdist_auto_num_workers():
    """Run one more worker than there are cores: tests also wait for disks and processes."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items):
    """Order the tests by LONGEST."""

    def rank(item):
        parts = item.path.parts
        return next((i for i, name in enumerate(LONGEST) if name in parts), len(LONGEST))

    items.sort(key=rank)


def pytest_collection_finish():
    """Do not search the objects of all imported libraries for garbage over and over."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


@pytest.fixture(scope='session', autouse=True)
def one_device():
    """Show one of the eight fake devices, and initialize parameters one operation at a time.

    Compiling takes most of the time of the tests: a step divided over eight devices takes longer,
    and an initialization as long as a step.
    """
    first = jax.devices()[:1]

    def compute(init, shardings, *arguments):
        return jax.device_put(op_by_op.evaluate(init, *arguments), shardings)

    with pytest.MonkeyPatch.context() as patch:
        for name in DEVICES:
            found = 1 if name.endswith('count') else first
            patch.setattr(jax, name, lambda *_, found=found: found)
        patch.setattr(state, '_compute', compute)
        yield


@pytest.fixture
def eight_devices(monkeypatch):
    """Show all fake devices, and compile initializations."""
    for name, function in DEVICES.items():
        monkeypatch.setattr(jax, name, function)
    monkeypatch.setattr(state, '_compute', COMPUTE)


@pytest.fixture(scope='module')
def no_figures():
    """Runs draw no figures, which are half of the time of the smallest ones."""
    from bert_jax.reports import tables
    from bert_jax.training.logging import Log

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Log, 'plot', lambda *_: None)
        patch.setattr(tables, 'plot_confusion', lambda *_: None)
        yield


@pytest.fixture
def no_loader_process(monkeypatch):
    """Exports to Hugging Face folders do not start a process that imports transformers."""
    from bert_jax.export_formats import huggingface

    monkeypatch.setattr(huggingface, 'can_run_loader', lambda: False)


@pytest.fixture
def buckets(tmp_path, monkeypatch) -> pathlib.Path:
    """A folder in which this process finds all buckets of gs://; their locks are not taken."""
    from bert_jax.storage import bucket, leases
    from tests.folder_bucket import Buckets

    monkeypatch.setattr(bucket, '_file_system', lambda scheme: Buckets(tmp_path / 'buckets'))
    monkeypatch.setattr(leases, 'hold', lambda path: None)
    return tmp_path / 'buckets'


@pytest.fixture(scope='session')
def real_data() -> pathlib.Path:
    """The folder of real texts named by BERT_JAX_TEST_DATA; skips without it."""
    folder = os.environ.get('BERT_JAX_TEST_DATA')
    if not folder:
        pytest.skip('BERT_JAX_TEST_DATA names no folder of real data')
    return pathlib.Path(folder)
