"""The peak FLOP/s of devices, to which MFU refers."""

from types import SimpleNamespace

import pytest

from bert_jax.training import devices


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
    chips = [SimpleNamespace(device_kind=kind)] * 4
    monkeypatch.setattr(devices.jax, 'devices', lambda: chips)
    monkeypatch.setattr(devices.jax, 'device_count', lambda: len(chips))
    monkeypatch.setattr(devices.jax, 'default_backend', lambda: 'gpu')
    monkeypatch.setattr(devices, 'measured_flops', None)  # would be an error
    assert devices.peak_flops('float32') == pytest.approx(4e12 * tflops)


@pytest.mark.parametrize('kind', ['cpu', 'NVIDIA T400', 'NVIDIA L40', 'NVIDIA GB200', 'TPU7x'])
def test_other_chips_are_measured(monkeypatch, kind):
    monkeypatch.setattr(devices.jax, 'devices', lambda: [SimpleNamespace(device_kind=kind)])
    assert devices.published_flops() is None


def test_simulated_devices_count_once(monkeypatch):
    monkeypatch.setitem(devices.MATRIX_SIZE, 'cpu', 64)
    monkeypatch.setattr(devices.timeit, 'repeat', lambda run, number, repeat: [1.0] * repeat)
    devices.measured_flops.cache_clear()
    assert devices.peak_flops('float32') == 2 * 64**3
    devices.measured_flops.cache_clear()


@pytest.mark.parametrize(
    ('dtype', 'bfloat16_flops', 'is_warned'),
    [('bfloat16', 1.0, True), ('bfloat16', 2.0, False), ('float32', 1.0, False)],
)
def test_bfloat16_is_warned_of_where_float32_is_faster(
    monkeypatch, capsys, dtype, bfloat16_flops, is_warned
):
    flops = {'float32': 1.5, 'bfloat16': bfloat16_flops}
    monkeypatch.setattr(devices, 'measured_flops', flops.__getitem__)
    devices.warn_of_slow_dtype(dtype)
    expected = '1.5 times as long in bfloat16 as in float32; set compute.dtype=float32'
    assert (expected in capsys.readouterr().err) == is_warned
