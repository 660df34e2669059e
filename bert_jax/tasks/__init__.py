"""Tie data, objectives, models and evaluation together for the one training loop; one line each in
this table.
"""

import functools

from bert_jax.tasks.finetuning import FineTuning
from bert_jax.tasks.pretraining import Pretraining
from bert_jax.tasks.problems import PROBLEMS

TASKS = {
    'pretraining': Pretraining,
    **{name: functools.partial(FineTuning, kind=kind) for name, kind in PROBLEMS.items()},
}
