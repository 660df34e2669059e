"""A fine-tuned model and what it says of raw input, from its checkpoint alone."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from bert_jax.data.finetune_batches import Shape, evaluation_slots, row_length
from bert_jax.data.special_token_layout import Framing
from bert_jax.data.tokenizers import Tokenizer
from bert_jax.errors import UserError
from bert_jax.interop.loading import architecture_from
from bert_jax.models.architecture import Compute
from bert_jax.tasks.finetuning_model import (
    EncodedExamples,
    FineTuningModel,
    decode_all,
    predict,
    prediction_step,
    to_records,
)
from bert_jax.tasks.problems import PROBLEMS
from bert_jax.training import checkpoints

RENAMED = {'choice': 'multiple_choice'}  # kinds of problems in old checkpoints


class FineTuned:
    """Attributes:
    task: one of PROBLEMS.
    problem: with the labels and settings it was trained with.
    """

    def __init__(self, path: str, dtype: str = 'float32', batch_tokens: int = 1024):
        """path: a run, or one of its checkpoints. Raises UserError if it was not fine-tuned."""
        restored = checkpoints.load(path, 'params')
        metadata = restored.metadata
        self.task = RENAMED.get(metadata['task'], metadata['task'])
        if self.task not in PROBLEMS:
            raise UserError(f'{path} is a {self.task} run; this needs a fine-tuned one')
        config = ConfigDict(metadata['config'])
        architecture = architecture_from(metadata['architecture'])
        tokenizer = Tokenizer.from_json(metadata['tokenizer'])
        length = config.training.max_length
        framing = Framing(tokenizer, length, architecture.type_vocab_size)
        self.problem = PROBLEMS[self.task].load()(config.problem, framing, metadata['labels'])
        self.problem.thresholds = dict(metadata['calibrated'])
        compute = Compute(dtype, scan_layers=config.compute.scan_layers)
        self._step = jax.jit(
            prediction_step(FineTuningModel(architecture, compute, self.problem), with_terms=False)
        )
        self._params = jax.tree.map(jnp.asarray, restored.state['params'])
        self._max_length, self._batch_tokens = architecture.max_length, batch_tokens

    def __call__(self, examples: Sequence, advance: Callable[[int], None] = lambda n: None) -> list:
        """The records (see Problem.record) of examples; `advance` is told how many windows are
        done."""
        encoded = EncodedExamples.of(self.problem, examples)
        length = row_length(int(encoded.items.length_N.max()), self._max_length)
        shape = Shape(max(1, self._batch_tokens // length), length, 1)
        shape = shape._replace(slots=evaluation_slots(encoded.items, shape))
        parts, _ = predict(self._step, self._params, encoded, shape, advance)
        predictions = decode_all(self.problem, examples, parts)
        return to_records(self.problem, examples, predictions)
