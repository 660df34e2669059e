"""Settings of all tests: they see BERT_JAX_TEST_DEVICES CPU devices (1), and share one cache.

Machine code is made quickly and runs slowly: little of the time of a test is spent in it. XLA's
older emitters, which jaxlib 0.12 lacks, take less than half the time of its fusion emitters.
"""

import contextlib
import gc
import os
import pathlib
import resource
import tempfile

from bert_jax.figures import VARIABLE
from bert_jax.xla_flags import known_flags

os.environ.setdefault('BERT_JAX_TEST_DEVICES', '1')
os.environ.setdefault('JAX_PLATFORMS', 'cpu')
if 'XLA_FLAGS' not in os.environ:  # workers get them from the process that starts them
    os.environ['XLA_FLAGS'] = known_flags(
        f'--xla_force_host_platform_device_count={os.environ["BERT_JAX_TEST_DEVICES"]}',
        '--xla_backend_optimization_level=0',
        '--xla_cpu_parallel_codegen_split_count=1',
        '--xla_cpu_use_fusion_emitters=false',
    )
os.environ.setdefault(
    'JAX_COMPILATION_CACHE_DIR', os.path.join(tempfile.gettempdir(), 'bert_jax_test_cache')
)
os.environ.setdefault('JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS', '0')
os.environ.setdefault('TOKENIZERS_PARALLELISM', 'false')
os.environ.setdefault(VARIABLE, '0')  # half of the time of the smallest runs
os.environ.setdefault('OMP_NUM_THREADS', '1')  # threads of PyTorch burn the time of other workers
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')  # for tests that import TensorFlow themselves

import jax
import pytest

from bert_jax.training import runtime

gc.disable()  # until all tests are collected: imports make no garbage worth a search

NUM_DEVICES = int(os.environ['BERT_JAX_TEST_DEVICES'])

MAX_RESIDENT_BYTES = 5 * 2**29  # after a file; the libraries take 1.3 GB

# Folders and files that take longest; they start first, so that all workers end together.
LONGEST = ('end_to_end', 'multidevice', 'test_configs.py', 'problems', 'experiments', 'parity')


def pytest_xdist_auto_num_workers():
    """Run one more worker than there are cores: tests also wait for disks and processes."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items):
    """Order the tests by LONGEST; skip those that need more devices."""

    def rank(item):
        parts = item.path.parts
        return next((i for i, name in enumerate(LONGEST) if name in parts), len(LONGEST))

    items.sort(key=rank)
    skip = pytest.mark.skip(reason='needs BERT_JAX_TEST_DEVICES=8')
    for item in items:
        if NUM_DEVICES < 8 and item.get_closest_marker('eight_devices'):
            item.add_marker(skip)


def pytest_collection_finish():
    """Do not search the objects of all imported libraries for garbage over and over."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(100_000, 20, 50)


@pytest.fixture(scope='module', autouse=True)
def free_memory():
    """Drop compiled programs once they take much memory: those of all files take 9 GB a process.

    Until then, files share them: tracing what many tests use takes 2 s of each file that trains.
    """
    yield
    if resident_bytes() > MAX_RESIDENT_BYTES:
        jax.clear_caches()
        runtime.return_freed_memory()


def resident_bytes() -> int:
    """Return the memory of this process, or the most that it had where Linux does not tell."""
    statm = pathlib.Path('/proc/self/statm')
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.fixture
def figures(monkeypatch):
    """Commands of this process draw figures."""
    monkeypatch.setenv(VARIABLE, '1')


@pytest.fixture
def no_loader_process():
    """Exports to Hugging Face folders do not start a process that imports transformers."""
    with _no_loader_process():
        yield


@pytest.fixture(scope='module')
def no_loader_process_in_file():
    """`no_loader_process` for all tests of a file."""
    with _no_loader_process():
        yield


@contextlib.contextmanager
def _no_loader_process():
    from bert_jax.export_formats import huggingface

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(huggingface, 'can_run_loader', lambda: False)
        yield


@pytest.fixture
def buckets(tmp_path, monkeypatch) -> pathlib.Path:
    """A folder in which this process finds all buckets of gs://; their locks are not taken."""
    from bert_jax.storage import bucket
    from bert_jax.storage.locks import Lock
    from tests.folder_bucket import Buckets

    monkeypatch.setattr(bucket, '_file_system', lambda scheme: Buckets(tmp_path / 'buckets'))
    monkeypatch.setattr(Lock, 'take', lambda self: True)
    return tmp_path / 'buckets'


@pytest.fixture(scope='session')
def real_data() -> pathlib.Path:
    """The folder of real texts named by BERT_JAX_TEST_DATA; skips without it."""
    folder = os.environ.get('BERT_JAX_TEST_DATA')
    if not folder:
        pytest.skip('BERT_JAX_TEST_DATA names no folder of real data')
    return pathlib.Path(folder)
