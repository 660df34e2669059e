"""Imports of the command lines, for the process from which commands.py forks them."""

import matplotlib.pyplot  # noqa: F401
import orbax.checkpoint  # noqa: F401

import bert_jax.tasks
import bert_jax.training.loop  # noqa: F401
from bert_jax import tensorflow_import
from bert_jax.training import devices

tensorflow_import.tensorflow()
devices.MATRIX_SIZE['cpu'] = 256  # measuring takes time
