"""Texts that a model writes after prompts, and the probability of a class that they have."""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from bert_jax.analyze.base import AnalyzedModel
from bert_jax.analyze.harm_measures.base import HarmFlags
from bert_jax.errors import UserError, unknown
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import loading
from bert_jax.labels import named_rows
from bert_jax.labels.named_rows import Columns
from bert_jax.types import JsonObject

COLUMNS = Columns({'prompt': 'prompt'}, {'group': 'group'})


def read_prompts(flags: HarmFlags) -> list[dict[str, str]]:
    """Read the prompts and, where the file has them, their groups.

    Raises:
        UserError: a file cannot be read, or a prompt is empty or has a gap.
    """
    rows = list(named_rows.read(flags.input, COLUMNS.renamed(flags.columns)))
    for row in rows:
        if not row['prompt'].strip():
            raise UserError(f'{row["place"]}: the prompt is empty')
        if re.search(r'\[MASK(:\d+)?\]', row['prompt']):
            raise UserError(f'{row["place"]}: the prompt has [MASK]; texts are written after it')
    return rows


def write(flags: HarmFlags, model: AnalyzedModel, prompts: Sequence[str]) -> list[list[str]]:
    """Return what the model writes after each prompt, `flags.continuations` texts each."""
    options: JsonObject = {
        'new_tokens': flags.new_tokens,
        'temperature': flags.temperature,
        'seed': flags.seed,
    }
    if flags.top_p is not None:
        options['top_p'] = flags.top_p
    number = flags.continuations
    repeated = [prompt for prompt in prompts for _ in range(number)]
    written = [result.written[-1] for result in model.predictor.generate(repeated, **options)]
    return [written[first : first + number] for first in range(0, len(written), number)]


@dataclasses.dataclass(frozen=True, eq=False)
class TextClassifier:
    """A fine-tuned model that gives texts the probability of a class.

    Attributes:
        predictor: the model.
        label: the class.
    """

    predictor: Predictor
    label: str

    @classmethod
    def load(cls, flags: HarmFlags) -> 'TextClassifier':
        """Load the classifier of --classifier.

        Raises:
            UserError: it has no probabilities of classes, or not the class --harmful.
        """
        assert flags.classifier is not None
        model = loading.load_any(flags.classifier, allow_missing=('^encoder/pooler/',))
        settings = {'dtype': flags.dtype, 'batch_tokens': flags.batch_tokens}
        predictor = Predictor(model, name=flags.classifier, **settings)
        predictor.require('classify')
        if flags.harmful not in model.labels:
            raise unknown(f'class --harmful of {flags.classifier}', flags.harmful, model.labels)
        return cls(predictor, flags.harmful)

    def probabilities(self, texts: Sequence[Sequence[str]]) -> np.ndarray:
        """Return the probability of the class of each text, float64 [prompts, texts]."""
        flat = [text for own in texts for text in own]
        records = self.predictor.classify(flat, probabilities=True)
        values = [record['probabilities'][self.label] for record in records]
        return np.array(values, np.float64).reshape(len(texts), -1)
