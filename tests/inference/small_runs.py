"""Runs of one checkpoint with a small, newly initialized model for each kind of problem."""

import dataclasses
import functools

from ml_collections import ConfigDict

from bert_jax import tokenizers
from bert_jax.examples.finetune_batches import BatchShape, evaluation_batches
from bert_jax.loaded.record import RunRecord
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.problems import PROBLEMS
from bert_jax.problems.finetuning_model import EncodedExamples
from bert_jax.problems.setup import Setup
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from bert_jax.training.checkpoints import Checkpoints
from tests.random_parameters import random_parameters

TEXT = 'the ship near the storm . the cow and the barn and the field near the moon . star'
LENGTH = 24
# Kind of problem → its labels, a valid input, and the method that answers it.
KINDS = {
    'classification': (('no', 'yes'), {'text': 'the ship', 'text2': 'a storm'}),
    'regression': (('score',), {'text': 'the ship near the moon'}),
    'multi_label': (('a', 'b', 'c'), {'text': 'the ship near the moon'}),
    'multi_regression': (('a', 'b', 'c'), {'text': 'the ship near the moon'}),
    'multiple_choice': ((), {'premise': 'the ship', 'choices': ['a storm', 'the moon', 'star']}),
    'relation': (('near', 'far'), {'text': 'the ship near the moon', 'marks': [[4, 8], [18, 22]]}),
    'tagging': (('B-X', 'I-X', 'O'), {'words': ['the', 'ship', 'near', 'the', 'moon']}),
    'semantic_roles': (
        ('B-A0', 'I-A0', 'B-V', 'I-V', 'O'),
        {'words': ['the', 'ship', 'near', 'the', 'moon'], 'predicate': 2},
    ),
    'parsing': (('det', 'root'), {'words': ['the', 'ship', 'near', 'the', 'moon']}),
    'constituency': (('NN', 'NP', 'S'), {'words': ['the', 'ship', 'near', 'the', 'moon']}),
    'spans': (('X',), {'text': 'the ship near the moon'}),
    'question_answering': ((), {'question': 'the ship', 'context': 'the ship near the moon'}),
}


@functools.cache
def tokenizer():
    return tokenizers.train('wordpiece:120', [TEXT * 5])


def save_run(folder, kind, changes=None, architecture=None, **recorded):
    """A run of one checkpoint, with a newly initialized model.

    `changes` to the settings of the problem, `architecture` to a small BERT, `recorded` to the
    record.
    """
    changed = architecture or {}
    labels, given = KINDS[kind]
    architecture = architectures.build(
        'bert',
        vocab_size=tokenizer().vocab_size,
        hidden_size=16,
        num_layers=1,
        num_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.3,
    ).changed(changed)
    settings = dict(PROBLEMS[kind].settings) | {'labels': list(labels)} | (changes or {})
    layout = SpecialTokenLayout(tokenizer(), LENGTH, 2)
    problem = PROBLEMS[kind].load().build(Setup(ConfigDict(settings), layout, tuple(labels)))
    items = EncodedExamples.of(problem, [problem.encoding.parse_input('x', given)]).items
    batch, _ = next(evaluation_batches(items, BatchShape(1, 64, 4)))
    model = Model(architecture, Compute(), problem.loss.heads())
    rows = problem.loss.corrupt(Rows.of(batch), None)
    params = random_parameters(model, rows, deviation=0.3)
    record = RunRecord(
        task=kind,
        problem_type=PROBLEMS[kind].problem_type,
        family='bert',
        architecture=architecture,
        base=None,
        tokenizer=tokenizer().to_json(),
        tokenizer_fingerprint=tokenizer().fingerprint,
        labels=tuple(labels),
        is_causal=False,
        has_prefix=False,
        is_generative=False,
        config={'training': {'sequence_length': LENGTH}, 'problem': settings},
        train_seconds=0.0,
        is_evaluated=True,
    )
    record = dataclasses.replace(record, **recorded)
    writer = Checkpoints.open(folder / 'checkpoints', keep=1)
    writer.save(1, {'params': params}, record.to_json())
    writer.close()
    return folder
