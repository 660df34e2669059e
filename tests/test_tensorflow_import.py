"""TensorFlow must leave the accelerators to JAX and stay quiet."""

import importlib.abc
import importlib.machinery
import os
import sys
import types

from bert_jax import tensorflow_import


class FakeTensorFlow(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports as `tensorflow`; records the environment and the devices made visible."""

    def __init__(self):
        self.environment = {}
        self.visible = []

    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == 'tensorflow' else None

    def exec_module(self, module):
        self.environment = dict(os.environ)
        module.config = types.SimpleNamespace(
            set_visible_devices=lambda devices, kind: self.visible.append((kind, devices))
        )


def test_tensorflow_is_quiet_and_sees_no_accelerator(monkeypatch):
    fake = FakeTensorFlow()
    monkeypatch.setitem(sys.modules, 'tensorflow', None)  # so that the real one is restored
    del sys.modules['tensorflow']
    monkeypatch.setattr(sys, 'meta_path', [fake, *sys.meta_path])
    monkeypatch.setattr(os, 'environ', {})
    tensorflow_import.tensorflow.__wrapped__()
    assert sorted(fake.visible) == [('GPU', []), ('TPU', [])]
    assert fake.environment['TF_CPP_MIN_LOG_LEVEL'] == '3'
    assert fake.environment['TF_ENABLE_ONEDNN_OPTS'] == '0'
