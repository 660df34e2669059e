"""A process in which TensorFlow and TensorFlow Datasets seem not to be installed."""

import sys

import pytest

from bert_jax import tensorflow_import


def hide(monkeypatch: pytest.MonkeyPatch):
    """Hide both packages from imports and from searches for them, even if they are imported."""
    for package in ('tensorflow', 'tensorflow_datasets'):
        monkeypatch.setitem(sys.modules, package, None)
        uncached = getattr(tensorflow_import, package).__wrapped__
        monkeypatch.setattr(tensorflow_import, package, uncached)
