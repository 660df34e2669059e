"""Predictions of a fine-tuned model for raw input."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from ml_collections import ConfigDict

from bert_jax.data.finetune_batches import BatchShape, row_length
from bert_jax.data.special_token_layout import SpecialTokenLayout
from bert_jax.data.tokenizers import Tokenizer
from bert_jax.errors import UserError
from bert_jax.interop.pretrained import Pretrained
from bert_jax.models.architecture import Compute
from bert_jax.tasks.finetuning_model import (
    EncodedExamples,
    FineTuningModel,
    decode_all,
    predict,
    prediction_step,
)
from bert_jax.tasks.problems import PROBLEMS
from bert_jax.types import Params

# For models of other libraries, whose folders name their heads but not their problem.
_KIND_OF_HEAD = {
    'sequence_classification': 'classification',
    'token_classification': 'tagging',
    'question_answering': 'question_answering',
    'multiple_choice': 'multiple_choice',
}


def problem_kind(model: Pretrained) -> str | None:
    """The kind of problem (key of PROBLEMS) a model was fine-tuned on; None if it was not."""
    if 'task' in model.metadata:
        task = model.metadata['task']
        return task if task in PROBLEMS else None
    for head, kind in _KIND_OF_HEAD.items():
        if head in model.heads:
            is_number = kind == 'classification' and len(model.labels) == 1
            return 'regression' if is_number else kind
    return None


class FineTuned:
    """A fine-tuned model.

    Attributes:
        task: the method of Predictor (and --task of predict.py) that queries the model.
    """

    def __init__(
        self,
        model: Pretrained,
        kind: str,
        tokenizer: Tokenizer,
        compute: Compute,
        batch_tokens: int,
    ) -> None:
        """Prepare inference; settings, labels and thresholds are those of the training.

        Args:
            kind: key of PROBLEMS.
            batch_tokens: tokens of a batch, padding included.
        """
        entry, architecture = PROBLEMS[kind], model.architecture
        config = model.metadata.get('config', {})
        length = config.get('training', {}).get('max_length', architecture.max_length)
        settings = ConfigDict({**entry.settings, **config.get('problem', {})})
        layout = SpecialTokenLayout(tokenizer, length, architecture.type_vocab_size)
        self.task = entry.predict_task
        self._problem = entry.load()(settings, layout, model.labels)
        self._problem.thresholds = dict(model.metadata.get('calibrated', {}))
        module = FineTuningModel(architecture, compute, self._problem)
        self._step = jax.jit(prediction_step(module, with_terms=False))
        self._max_length, self._batch_tokens = architecture.max_length, batch_tokens

    def predict(
        self,
        params: Params,
        inputs: Sequence[Mapping[str, Any]],
        advance: Callable[[int], object],
    ) -> list[dict[str, Any]]:
        """Predict for JSON objects.

        Args:
            params: 'encoder' and the problem's heads.
            inputs: see `Problem.parse_input`; 'id' is the name of an input in errors and records.
            advance: called with the number of windows that are done.

        Returns:
            Records as in predictions.jsonl of a run, without 'gold'.
        """
        if not inputs:
            return []
        examples = [
            self._problem.parse_input(given.get('id', f'input {number}'), given)
            for number, given in enumerate(inputs)
        ]
        encoded = EncodedExamples.of(self._problem, examples)
        length = row_length(int(encoded.items.length_N.max()), self._max_length)
        shape = BatchShape(max(1, self._batch_tokens // length), length, 1)
        outputs, _ = predict(self._step, params, encoded, shape, advance)
        predictions = decode_all(self._problem, examples, outputs)
        records = map(self._problem.to_record, examples, predictions)
        return [{name: value for name, value in own.items() if name != 'gold'} for own in records]


def as_pair(text: str | Sequence[str] | Mapping[str, Any]) -> Mapping[str, Any]:
    """The input of `FineTuned.predict` for a text, a pair of texts or a dictionary."""
    if isinstance(text, Mapping):
        return text
    texts = [text] if isinstance(text, str) else text
    if not 1 <= len(texts) <= 2:
        raise UserError(f'expected a text or a pair of texts, not {len(texts)} texts')
    return dict(zip(('text', 'text2'), texts, strict=False))


def as_words(text: str | Sequence[str] | Mapping[str, Any]) -> Mapping[str, Any]:
    """The input of `FineTuned.predict` for a text, a list of words or a dictionary."""
    if isinstance(text, Mapping):
        return text
    return {'text': text} if isinstance(text, str) else {'words': list(text)}
