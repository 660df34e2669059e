"""Fine-tuning; what follows the colon is the task.

    python -m bert_jax.main --config=configs/finetune.py:mnli --config.init_from=WEIGHTS

The keys of configs/base.py with those below; `data` and `problem` are as the task wants them.
"""

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from configs import base

_CLASSES = dict(
    labels=(),  # in the order of their numbers; () = those of the train split, sorted
    metrics=('accuracy',),  # those that count, of several the mean: evaluation/scores.py
    positive='',  # the class whose F1 is 'f1'
    negative='',  # the class that stands for none of the others, for 'f1_micro'
    class_weights='none',  # 'balanced': by 1 / frequency
    label_smoothing=0.0,
)
PROBLEMS = {
    'classification': _CLASSES,
    'regression': dict(labels=(), metrics=('pearson', 'spearman')),
    'choice': dict(labels=()),
}


def get_config(task: str = 'file') -> ConfigDict:
    config = base.get_config().unlock()
    for key in ('data', 'stages', 'objectives', 'masking', 'sbo', 'rtd', 'editing'):
        del config[key]
    config.task = 'classification'
    config.workdir = f'runs/{task}'
    config.model.architecture = placeholder(str)  # as the weights of init_from
    config.problem = ConfigDict(PROBLEMS[config.task])
    config.training = ConfigDict(
        dict(
            epochs=3.0,
            steps=0,  # instead of epochs, which then is 0
            batch_size=32,  # examples, or windows of long ones
            accumulation=1,  # micro-batches a step
            max_length=128,  # tokens of a sequence, special ones included
        )
    )
    config.optimizer.name = 'adamw'
    config.schedule.name = 'linear'
    config.schedule.learning_rate = 2e-5
    config.schedule.warmup_steps = 0
    config.schedule.warmup_fraction = 0.1
    config.evaluation = ConfigDict(dict(every_steps=0))  # on the dev split; 0 = once an epoch
    config.compute.dtype = 'float32'
    config.logging.every_steps = 20
    config.checkpoint = ConfigDict(dict(every_steps=0, keep=1))
    return config.lock()
