"""The settings of XLA and the C library."""

import importlib.util
import logging
import subprocess
import sys

import jax
import pytest

from bert_jax.errors import UserError
from bert_jax.models import partitioning
from bert_jax.training import runtime, sharding


def test_the_compiler_orders_instructions_for_the_least_memory():
    def draw(key):
        return [jax.random.normal(jax.random.fold_in(key, i), (500, 500)) for i in range(6)]

    def temporaries(**options):
        compiled = jax.jit(draw, **options).lower(jax.random.key(0)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert temporaries(compiler_options=runtime.compiler_options()) < temporaries() / 2


def test_options_that_the_compiler_refuses_are_left_out_with_a_warning(capsys):
    known = {'xla_backend_optimization_level': '1'}
    assert runtime.known_options(known | {'xla_no_such_option': 'true'}) == known
    assert runtime.known_options({'xla_no_such_option': 'true'}) == {}
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('warning: the compiler refuses its option xla_no_such_option (')


def test_only_the_cpu_backend_keeps_freed_memory(monkeypatch):
    calls = []
    monkeypatch.setattr(runtime, 'keep_freed_memory', lambda: calls.append(jax.default_backend()))
    monkeypatch.setattr(jax.config, 'update', lambda *_: None)
    runtime.configure()
    assert calls == ['cpu']
    monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
    runtime.configure()
    assert calls == ['cpu']


@pytest.mark.parametrize(
    ('backend', 'processes', 'named', 'is_set'),
    [
        ('gpu', 1, False, True),
        ('gpu', 2, False, False),
        ('tpu', 2, False, True),
        ('gpu', 2, True, False),  # JAX itself reads the variable
    ],
)
def test_gpu_processes_use_only_a_compilation_cache_that_the_user_names(
    monkeypatch, backend, processes, named, is_set
):
    updated = {}
    monkeypatch.setattr(jax.config, 'update', updated.__setitem__)
    monkeypatch.setattr(jax, 'default_backend', lambda: backend)
    monkeypatch.setattr(jax, 'process_count', lambda: processes)
    monkeypatch.delenv('JAX_COMPILATION_CACHE_DIR', raising=False)
    if named:
        monkeypatch.setenv('JAX_COMPILATION_CACHE_DIR', '/shared')
    runtime.configure()
    assert ('jax_compilation_cache_dir' in updated) == is_set


def test_a_plugin_without_a_device_is_one_line(caplog, monkeypatch):
    def devices():
        try:
            raise ValueError('cuInit(0) failed:\n no CUDA')
        except ValueError:
            logging.getLogger('jax._src.xla_bridge').exception('error of %s', 'xla_cuda12')
        return cpus

    cpus = jax.devices()
    monkeypatch.setattr(jax, 'devices', devices)
    assert runtime.find_devices() == cpus
    message = 'error of xla_cuda12: cuInit(0) failed: no CUDA; continuing without its devices'
    assert [logging.Formatter().format(record) for record in caplog.records] == [message]
    devices()  # others' records are left alone
    assert 'Traceback' in caplog.text


@pytest.mark.parametrize(('found', 'number'), [(None, 0), ('libtpu', 1)])
def test_libtpu_without_a_tpu_is_one_line(found, number, capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: found)
    monkeypatch.delenv('JAX_PLATFORMS', raising=False)
    runtime.find_devices()
    assert capsys.readouterr().err.count('finds no TPU') == number


@pytest.mark.parametrize('error', [AssertionError(), RuntimeError('no\nTPU')])
def test_a_platform_that_is_asked_for_must_exist(error, monkeypatch):
    def devices():
        raise error

    monkeypatch.setattr(jax, 'devices', devices)
    monkeypatch.setenv('JAX_PLATFORMS', 'tpu')
    with pytest.raises(UserError, match="JAX_PLATFORMS is 'tpu', but no such device") as found:
        runtime.find_devices()
    assert '\n' not in str(found.value)


PAGE_FAULTS = """
import ctypes, resource
from bert_jax.training import runtime
runtime.keep_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = libc.malloc(3 << 30)
    ctypes.memset(block + (3 << 30) - (64 << 20), 1, 64 << 20)
    libc.free(block)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != 'linux', reason='the setting is for glibc')
def test_glibc_keeps_freed_memory():
    """A block of 3 GiB, as the temporaries of a step can be; only its end is touched."""
    done = subprocess.run(
        [sys.executable, '-c', PAGE_FAULTS], stdout=subprocess.PIPE, text=True, check=True
    )
    first, second = map(int, done.stdout.split())
    assert second < first / 10


@pytest.mark.eight_devices
def test_weights_are_gathered_whole_on_tpus_if_they_are_sharded(monkeypatch):
    monkeypatch.setattr(partitioning, 'platform', lambda: 'tpu')
    monkeypatch.setattr(runtime, 'known_options', dict)  # no compiler for TPUs to ask
    with jax.set_mesh(sharding.make_mesh({'data': 8, 'fsdp': 1, 'tensor': 1})):
        assert runtime.compiler_options() == {}
    with jax.set_mesh(sharding.make_mesh({'data': 4, 'fsdp': 2, 'tensor': 1})):
        options = runtime.compiler_options()
    assert options['xla_tpu_enable_windowed_einsum_for_all_gather'] == 'false'
