"""TensorFlow must leave the accelerators to JAX and stay quiet, and what needs it says so."""

import functools
import importlib.abc
import importlib.machinery
import os
import sys
import types

import pytest
from ml_collections import ConfigDict

from bert_jax import tensorflow_import
from bert_jax.errors import UserError
from bert_jax.interop import tf1_folder
from bert_jax.labels import benchmarks
from bert_jax.labels.records import ReadingReport
from bert_jax.text import sources
from tests import hidden_tensorflow
from tests.export_formats import exported


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


def open_text(folder):
    sources.open_source(f'tfds:wiki40b/en;data_dir={folder}')


def read_benchmark(folder):
    data = ConfigDict({'dataset': 'sst2', 'language': 'en', 'data_dir': str(folder)})
    data.update(train='', dev='', test='', download=True)
    benchmarks.read(data, 'classification', ReadingReport())


def read_checkpoint(folder):
    tf1_folder._read(folder / 'bert_model.ckpt')


def export(name, folder):
    exported.write(folder / 'out', name, exported.small_model())


# What needs TensorFlow → the start of the message that says so.
NEEDS_TENSORFLOW = {
    'text': (open_text, "source 'tfds:wiki40b/en;data_dir={}' needs TensorFlow and {datasets}: "),
    'labels': (read_benchmark, "data.dataset='sst2' needs TensorFlow and {datasets}: "),
    'weights': (read_checkpoint, '{}/bert_model.ckpt, a checkpoint of TensorFlow, needs'),
    **{
        name: (functools.partial(export, name), f'--format={name} needs TensorFlow: ')
        for name in ('savedmodel', 'tflite')
    },
}


@pytest.mark.parametrize('kind', NEEDS_TENSORFLOW)
@pytest.mark.parametrize('python', [(3, 13), (3, 14)])
def test_what_needs_tensorflow_says_so_in_one_line(kind, python, tmp_path, monkeypatch):
    use, start = NEEDS_TENSORFLOW[kind]
    hidden_tensorflow.hide(monkeypatch)
    version = types.SimpleNamespace(version_info=python)
    monkeypatch.setattr(tensorflow_import, 'sys', version)
    with pytest.raises(UserError) as caught:
        use(tmp_path)
    message = str(caught.value)
    assert message.startswith(start.format(tmp_path, datasets='TensorFlow Datasets'))
    advice = {(3, 13): 'pip install tensorflow', (3, 14): 'this is Python 3.14, use Python 3.13'}
    assert advice[python] in message
    assert '\n' not in message
    assert not list(tmp_path.iterdir())


def test_only_tensorflow_datasets_may_be_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, 'tensorflow_datasets', None)
    tensorflow_import.require('an export')
    with pytest.raises(UserError, match=r'^x needs TensorFlow Datasets: pip install tensorflow-d'):
        tensorflow_import.require('x', datasets=True)


def test_a_folder_named_tensorflow_is_not_the_package(tmp_path, monkeypatch):
    (tmp_path / 'tensorflow_of_mine').mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert tensorflow_import.is_installed()
    assert not tensorflow_import.is_installed('tensorflow_of_mine')
