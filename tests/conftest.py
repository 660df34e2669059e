"""Every test sees 8 fake CPU devices and shares one compilation cache. Machine code is made
quickly and runs slowly: little of the time of a test is spent in it. XLA's older emitters take less
than half the time of its fusion emitters."""

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


def pytest_collection_finish():
    """Do not search the objects of all imported libraries for garbage over and over."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


@pytest.fixture(scope='module')
def quick_training():
    """Training uses one device and draws no figures, which are most of the time of a small run."""
    from bert_jax.evaluation import tables
    from bert_jax.training.logging import Log

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, 'device_count', lambda: 1)
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
