"""TensorFlow and TFDS imported on first use: quietly, leaving the accelerator to JAX."""

import functools
import os

from bert_jax.garbage import uncollected


@functools.cache
def tensorflow():
    """The `tensorflow` module, its log silenced and its accelerators hidden."""
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '0')
    os.environ.setdefault('TF_USE_LEGACY_KERAS', '1')  # else Keras is imported too, for a second
    with uncollected():
        import tensorflow as tf

    for kind in ('GPU', 'TPU'):
        tf.config.set_visible_devices([], kind)
    return tf


@functools.cache
def tensorflow_datasets():
    """The `tensorflow_datasets` module."""
    tensorflow()
    import tensorflow_datasets as tfds

    return tfds
