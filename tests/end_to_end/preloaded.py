"""What the command lines import, for the process from which commands.py forks them."""

import matplotlib.pyplot  # noqa: F401
import orbax.checkpoint  # noqa: F401
import tensorboardX  # noqa: F401

import bert_jax.tasks
import bert_jax.training.loop  # noqa: F401
from bert_jax.data import tensorflow_import
from bert_jax.training import hardware

tensorflow_import.tensorflow()
hardware.EDGE['cpu'] = 256  # how fast the machine is takes a second to measure, at every start
