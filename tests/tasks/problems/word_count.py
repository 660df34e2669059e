"""A fine-tuning problem defined outside of the package: predict how many words a text has."""

from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from bert_jax.averages import weighted_sum
from bert_jax.data import finetune_batches
from bert_jax.evaluation import scores
from bert_jax.models.heads import SequenceClassificationHead
from bert_jax.tasks.problems import ProblemKind
from bert_jax.tasks.problems.base import HostOutputs, Problem, require


class CountExample(NamedTuple):
    id: str
    text: str
    label: float | None


def read_row(row, name, builder):
    label = builder.label(row, builder.columns.label)
    return [CountExample(name, row['text'], None if label is None else float(label))]


class WordCount(Problem[CountExample, float]):
    weights = {'word_count': 1.0}

    def parse_input(self, name, given):
        return CountExample(name, require(given, name, 'text'), None)

    def encode(self, example):
        (ids,) = self.tokenizer.encode_batch([example.text]).ids
        laid_out = self.layout.lay_out(ids[: self.layout.max_text_tokens(1)])
        known = example.label is not None
        values = {'target': np.float32(example.label or 0), 'known': np.float32(known)}
        return [
            (finetune_batches.TokenSequence(laid_out.ids, laid_out.token_type_ids, {}, values),)
        ]

    def make_heads(self, architecture, compute):
        return {'count': partial(SequenceClassificationHead, architecture, compute, num_labels=1)}

    def apply_heads(self, heads, encoded, batch, dropout_seeds_R):
        logits_RSC = super().apply_heads(heads, encoded, batch, dropout_seeds_R)['logits']
        return {'count': self.settings.scale * logits_RSC[..., 0]}

    def terms(self, outputs, batch):
        error_RS = jnp.square(outputs['count'] - batch['target'])
        return {'word_count': weighted_sum(error_RS, batch['known'])}

    def host_outputs(self, outputs, batch):
        return HostOutputs({'count': outputs['count']}, {})

    def decode(self, example, parts):
        ((part,),) = parts
        return float(part['count'])

    def score(self, examples, predictions):
        return scores.regression([one.label for one in examples], predictions, ('rmse',))

    def to_record(self, example, prediction):
        return {'id': example.id, 'gold': example.label, 'count': prediction}


KIND = ProblemKind(
    implementation=f'{__name__}:WordCount',
    predict_task='classify',
    settings=dict(labels=(), scale=10.0),
    readers={'tsv': read_row},
)
