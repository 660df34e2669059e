"""Fine-tuning; what follows the colon is the task.

    python -m bert_jax.main --config=configs/finetune.py:mnli --config.init_from=WEIGHTS

A benchmark or a sample by name (bert_jax/data/labeled/catalog.py: TASKS), or for your own files
a kind of task (bert_jax/tasks/problems.py); 'file' is classification. The keys are those of
configs/base.py with the ones below for its `data`, `stages`, `objectives` and what belongs to them.
"""

import copy

from ml_collections import ConfigDict
from ml_collections.config_dict import placeholder

from bert_jax.data.labeled import catalog
from bert_jax.errors import unknown
from bert_jax.evaluation import glue
from configs import base

_CLASSES = dict(
    labels=(),  # in the order of their numbers; () = those of the train split, sorted
    metrics=('accuracy',),  # those that count, of several the mean: evaluation/scores.py
    positive='',  # the class whose F1 is 'f1'
    negative='',  # the class that stands for none of the others, for 'f1_micro'
    class_weights='none',  # 'balanced': by 1 / frequency
    label_smoothing=0.0,
)
_MARKED = dict(
    **_CLASSES,
    exclusive=False,  # of what is paired with one first mark, at most one is `positive`
)
PROBLEMS = {
    'classification': _CLASSES,
    'regression': dict(labels=(), metrics=('pearson', 'spearman')),
    'choice': dict(labels=()),
    'question_answering': dict(
        labels=(),
        doc_stride=128,  # tokens from a window to the next, at most half a window
        question_tokens=64,  # of a longer question the end is cut off
        answer_tokens=30,  # of an answer at most
        n_best=20,  # candidates for either end of a window, and answers that are given
        no_answer=False,  # may a question have none (SQuAD 2.0)?
    ),
    'tagging': dict(
        labels=(),
        label_pieces='first',  # of a word that learn its tag: 'first', 'all'
        decode_pieces='first',  # that say it: 'first', 'mean'
        label_smoothing=0.0,
        class_weights='none',  # 'balanced': by 1 / frequency, of words
        crf=False,  # a chain over the words, in which only legal BIO or BIOES is possible
        crf_rate=20.0,  # how many times as fast as the rest the chain learns
        overlap=0.5,  # of neighboring windows of a long text
    ),
    'coreference': _MARKED,
    'relation': _MARKED,
    'spans': dict(
        labels=(),
        max_span_words=10,  # longer ones are not found
        nested=True,  # spans may overlap; False: the most probable of those that do
        summary='mean',  # of a span's states; 'attention': weighted by a learned score
        boundary='ffn',  # a layer for starts and one for ends; 'state': none
        width=150,  # of the layers that score spans
        class_weights='none',  # 'balanced': by 1 / frequency, no label being a class too
        overlap=0.5,  # of a window of a long text, what the next one sees as well
    ),
    'word_in_context': _MARKED,
}
_OWN_FILES = dict(data={}, recipe=dict(batch_size=32, learning_rate=2e-5, epochs=3, max_length=128))


def get_config(task: str = 'file') -> ConfigDict:
    named = _named(task)
    kind, recipe = named['kind'], named['recipe']
    config = base.get_config().unlock()
    for key in ('data', 'stages', 'objectives', 'masking', 'sbo', 'rtd', 'editing'):
        del config[key]
    config.task = kind
    config.workdir = f'runs/{task}'
    config.model.architecture = placeholder(str)  # None: that of the weights
    config.data = ConfigDict(
        dict(
            tokenizer='',  # without init_from: a file, or 'train:wordpiece:2000' of the texts
            reading_threads=1,
            **copy.deepcopy(catalog.DATA),
        )
    )
    config.data.update(named['data'])
    config.problem = ConfigDict(PROBLEMS[kind])
    config.problem.update(named.get('problem', {}))
    known = (glue.GLUE | glue.SUPER_GLUE).get(task)
    if known and kind in ('classification', 'regression'):
        config.problem.metrics = known.metrics
        config.problem.update({'positive': known.positive} if known.positive else {})
    config.training = ConfigDict(
        dict(
            epochs=float(recipe['epochs']),
            steps=0,  # instead of epochs, which then is 0
            batch_size=recipe['batch_size'],  # examples, or windows of long ones
            accumulation=1,  # micro-batches a step
            max_length=recipe['max_length'],  # tokens of a sequence, special ones included
        )
    )
    config.optimizer.name = 'adamw'
    config.schedule.name = 'linear'
    config.schedule.learning_rate = recipe['learning_rate']
    config.schedule.warmup_steps = 0
    config.schedule.warmup_fraction = 0.1
    # On the dev split, once an epoch; `best` and `patience` as in configs/base.py.
    config.evaluation = ConfigDict(dict(every_steps=0, best='', patience=0))
    config.compute.dtype = 'float32'
    config.checkpoint = ConfigDict(dict(every_steps=0, keep=1))
    config.logging.every_steps = 20
    return config.lock()


def _named(task: str) -> dict:
    if task in catalog.TASKS:
        return catalog.TASKS[task]
    kind = 'classification' if task == 'file' else task
    if kind not in PROBLEMS:
        raise unknown('task', task, [*catalog.TASKS, 'file', *PROBLEMS])
    return dict(kind=kind, **_OWN_FILES)
