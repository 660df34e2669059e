"""The peak FLOP/s to which MFU refers."""

from types import SimpleNamespace

import pytest

from bert_jax.training import peak_flops


@pytest.mark.parametrize(
    ('kind', 'tflops'),
    [
        ('TPU v4', 275),
        ('TPU v5 lite', 197),
        ('TPU v5', 459),
        ('TPU v6 lite', 918),
        ('NVIDIA A100-SXM4-80GB', 312),
        ('NVIDIA H100 80GB HBM3', 989),
        ('NVIDIA H100 PCIe', 756),
        ('NVIDIA H200', 989),
        ('NVIDIA L4', 121),
        ('NVIDIA L40S', 362),
        ('Tesla T4', 65),
        ('Tesla V100-SXM2-16GB', 125),
    ],
)
def test_known_chips_have_their_published_peak(monkeypatch, kind, tflops):
    devices = [SimpleNamespace(device_kind=kind)] * 4
    monkeypatch.setattr(peak_flops.jax, 'devices', lambda: devices)
    monkeypatch.setattr(peak_flops.jax, 'device_count', lambda: len(devices))
    monkeypatch.setattr(peak_flops.jax, 'default_backend', lambda: 'gpu')
    monkeypatch.setattr(peak_flops, 'measured_flops', None)  # would be an error
    assert peak_flops.peak_flops('float32') == pytest.approx(4e12 * tflops)


@pytest.mark.parametrize('kind', ['cpu', 'NVIDIA T400', 'NVIDIA L40', 'NVIDIA GB200', 'TPU7x'])
def test_other_chips_are_measured(monkeypatch, kind):
    monkeypatch.setattr(peak_flops.jax, 'devices', lambda: [SimpleNamespace(device_kind=kind)])
    assert peak_flops.published_flops() is None


def test_simulated_devices_count_once(monkeypatch):
    monkeypatch.setitem(peak_flops.MATRIX_SIZE, 'cpu', 64)
    monkeypatch.setattr(peak_flops.timeit, 'repeat', lambda run, number, repeat: [1.0] * repeat)
    peak_flops.measured_flops.cache_clear()
    assert peak_flops.peak_flops('float32') == 2 * 64**3
    peak_flops.measured_flops.cache_clear()
