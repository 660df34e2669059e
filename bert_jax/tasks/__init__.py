"""Tie data, objectives, models and evaluation together for the one training loop; one line each in
this table.
"""

from bert_jax.tasks.pretraining import Pretraining

TASKS = {
    'pretraining': Pretraining,
}
