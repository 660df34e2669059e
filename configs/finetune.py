r"""Fine-tune a pretrained model on labeled examples: BERT's published hyperparameters.

    python -m bert_jax.main --config=configs/finetune.py:mnli --config.init_from=WEIGHTS

WEIGHTS is a run, a checkpoint or a Hugging Face folder. The word after the colon is one of

- a benchmark or a sample of configs/finetune_tasks.py: its data and its hyperparameters;
- few_shot: `prompt` on 16 examples of each class, five times (docs/prompting.md);
- for your own files, a kind of problem: classification ('file' is the same), regression,
  multiple_choice, relation, word_in_context, coreference, tagging, spans, question_answering,
  prompt, prompt_regression.

    python -m bert_jax.main --config=configs/finetune.py:file --config.init_from=WEIGHTS \
        --config.data.train=reviews.tsv \
        --config.data.columns.text=review --config.data.columns.label=stars

Keys that are not set here are as in configs/base.py. `data` is documented in
bert_jax/labels/loader.py (DEFAULTS), `problem` in bert_jax/problems/__init__.py.
"""

import copy

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from bert_jax.errors import unknown
from bert_jax.labels import loader
from bert_jax.problems import PROBLEMS
from bert_jax.reports import glue
from configs import base
from configs.finetune_tasks import TASKS

_PRETRAINING_ONLY = ('data', 'training', 'objectives', 'masking', 'sbo', 'rtd', 'editing')
_OWN_FILES = dict(
    data={}, recipe=dict(batch_size=32, learning_rate=2e-5, epochs=3, sequence_length=128)
)
PARAMETERS = ('file', *TASKS, *PROBLEMS)


def get_config(task: str = 'file') -> ConfigDict:
    """Return the config of a named task, or of a kind of problem on your own files."""
    named = _find(task)
    kind, recipe = named['kind'], named['recipe']
    config = base.get_config().unlock()
    for key in _PRETRAINING_ONLY:
        del config[key]
    config.task = kind
    config.workdir = f'runs/{task}'
    config.model.architecture = placeholder(str)  # unset: the architecture of init_from
    config.data = ConfigDict(
        dict(
            # Without init_from: a tokenizer file, or 'train:wordpiece:2000' to train one on the
            # train split. With init_from: '' (the tokenizer of the weights).
            tokenizer='',
            reading_threads=1,  # threads that build batches ahead of the training step
            **copy.deepcopy(loader.DEFAULTS),
        )
    )
    config.data.update(named['data'])
    config.problem = ConfigDict(copy.deepcopy(dict(PROBLEMS[kind].settings)))
    config.problem.update(named.get('problem', {}))
    benchmark = (glue.GLUE | glue.SUPER_GLUE).get(task)
    if benchmark and kind in ('classification', 'regression'):
        config.problem.metrics = benchmark.metrics
        if benchmark.positive:
            config.problem.positive = benchmark.positive
    config.training = ConfigDict(
        dict(
            epochs=float(recipe['epochs']),  # passes over the train split; 0 if `steps` is set
            steps=0,  # training steps; 0 if `epochs` is set
            batch_size=recipe['batch_size'],  # examples per step; for long texts, windows
            accumulation=1,  # micro-batches per step: less memory, same result
            # tokens per sequence, special tokens included; fewer if the model has fewer positions
            sequence_length=recipe['sequence_length'],
        )
    )
    config.optimizer.name = 'adamw'
    config.schedule = ConfigDict(
        dict(
            name='linear',  # or 'bert_linear', 'cosine', 'sqrt', 'constant'
            # Peak. Default: base_learning_rate × (768 / hidden_size)² in models narrower than
            # BERT-base, at most 1e-3; with transfer.method, the rate published with the method.
            learning_rate=placeholder(float),
            base_learning_rate=recipe['learning_rate'],  # for models as wide as BERT-base
            end_learning_rate=0.0,  # after the last step
            warmup_steps=placeholder(int),  # default: warmup_fraction of the run; 0 = no warmup
            warmup_fraction=0.1,  # share of the run
            decay_steps=0,  # decay over the last steps only, constant before; 0 = after the warmup
        )
    )
    config.evaluation = ConfigDict(
        dict(  # on the dev split
            every_steps=0,  # 0: once per epoch
            # A metric such as 'accuracy', or '' for none: the checkpoint with the best value is
            # kept, and the run ends with its parameters.
            best='',
            patience=0,  # stop after this many evaluations without a better value; 0: never
        )
    )
    config.compute.dtype = 'float32'
    config.checkpoint = ConfigDict(
        dict(
            every_steps=0,  # 0: only at the end, at signals and with evaluation.best
            keep=1,  # newest checkpoints on disk
        )
    )
    config.logging.every_steps = 20
    config.update_from_flattened_dict(named.get('values', {}))
    return config.lock()


def _find(task: str) -> dict:
    """Return the kind, data and recipe of a task. Raises UserError for an unknown one."""
    if task in TASKS:
        return TASKS[task]
    kind = 'classification' if task == 'file' else task
    if kind not in PROBLEMS:
        raise unknown('task', task, PARAMETERS)
    return dict(kind=kind, **_OWN_FILES)
