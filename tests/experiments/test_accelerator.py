"""The first hour on an accelerator, on CPU: kernels interpreted, and a step of a small model."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest

from bert_jax.models import kernels, pallas_attention
from experiments.accelerator import attention_check, run


@pytest.fixture
def tpu(monkeypatch):
    """The kernel of TPUs is the kernel of this machine, interpreted."""
    monkeypatch.setattr(kernels, 'PLATFORMS', {'flash': 'cpu'})
    monkeypatch.setattr(pallas_attention, 'INTERPRET', True)


def test_a_kernel_is_compared_with_materialized_scores(tpu):
    record = attention_check.check('bert', length=128, num_layers=1)
    assert record['kernel'] == 'flash'
    assert record['passes']
    assert 0 < record['error_of_xla'] < 0.1


def test_a_wrong_kernel_does_not_pass(tpu, monkeypatch):
    right = kernels.attend

    def wrong(kernel, query, key, value, visibility, *options):
        return right(kernel, query, key, value, visibility.replace(is_causal=True), *options)

    monkeypatch.setattr(kernels, 'attend', wrong)
    record = attention_check.check('bert', length=128, num_layers=1)
    assert not record['passes']


def test_without_a_kernel_the_reason_is_given():
    record = attention_check.check('bert', length=128, num_layers=1)
    assert record['kernel'] == 'xla'
    assert 'reason' in record


@pytest.mark.parametrize(('factor', 'passes'), [(1 + 1e-6, True), (1 + 1e-3, False)])
def test_float32_with_rounded_operands_does_not_pass(factor, passes, monkeypatch):
    found = iter([[np.ones(3)], [np.full(3, factor)]])  # on the CPU, on the device
    monkeypatch.setattr(attention_check, 'run', lambda *arguments: next(found))
    assert attention_check.check_float32(length=64, num_layers=1)['passes'] == passes


def test_memory_is_compared_with_the_compiled_step():
    record = {'shape': 'base_512', 'batch': 32, 'side': 'bert_jax', 'peak_mib': 15_162}
    compared = run.compare_memory(record, '1 × NVIDIA H100 80GB HBM3 with jax 0.11.2')
    assert 0.9 < compared['memory_of_compiled'] < 1.1
    for other in ({'batch': 16}, {'side': 'torch_gathered'}, {'shape': 'large'}):
        assert not run.compare_memory(record | other, '1 × NVIDIA H100 80GB HBM3')


@pytest.mark.slow
def test_the_command_writes_a_table_and_lists_what_was_not_measured(tmp_path):
    command = ['-m', 'experiments.accelerator.run', '--shapes=tiny:2,mini:2']
    command += ['--length=64', '--steps=2', '--sides=bert_jax,bert_jax_dense', '--minutes=1.5']
    subprocess.run([sys.executable, *command, f'--output={tmp_path}/first'], check=True)
    result = json.loads((tmp_path / 'first.json').read_text())
    measured = result['steps'][0]
    assert measured['shape'] == 'tiny'
    assert measured['tokens_per_second'] > 0
    assert len(result['steps']) == 4
    assert (tmp_path / 'first.png').exists()


def test_the_time_ends_a_measurement_and_its_processes(tmp_path):
    budget = run.Budget(time.monotonic() + 1)
    child = f'import pathlib, time; time.sleep(5); pathlib.Path({str(tmp_path / "late")!r}).touch()'
    code = f'import subprocess, sys; subprocess.run([sys.executable, "-c", {child!r}])'
    with pytest.raises(subprocess.TimeoutExpired):
        budget.run('-c', code)
    time.sleep(5)
    assert not (tmp_path / 'late').exists()
