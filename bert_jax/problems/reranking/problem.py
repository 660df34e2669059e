"""The fine-tuning problem of rerankers: a logit for each pair of a query and a document."""

import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.averages import Terms
from bert_jax.errors import UserError
from bert_jax.examples.finetune_batches import Item
from bert_jax.labels.examples import TextGroup
from bert_jax.metrics import metrics, retrieval
from bert_jax.metrics.intervals import RowScore
from bert_jax.metrics.scores import Scores
from bert_jax.models.model import HeadOptions
from bert_jax.problems import base, loss_options, raw_input
from bert_jax.problems.classification import ACTIVATIONS, sequence
from bert_jax.problems.reranking import LOSSES
from bert_jax.problems.reranking.base import RankingLoss, ScoreBatch
from bert_jax.types import Batch, JsonRecord, RecordView

_CUTOFFS = (10,)
_RANKING = ('ndcg@10', 'mrr@10', 'map')  # of the metrics of a query


class DocumentScore(NamedTuple):
    """The logit of a document, and the score that the model gives as its answer."""

    logit: float
    score: float


class RerankingEncoding(base.Encoding[TextGroup]):
    """A sequence for each document of a query; all documents of a query are in one row."""

    @functools.cached_property
    def ranking_loss(self) -> RankingLoss:
        """The loss of the settings."""
        return loss_options.make(LOSSES, self.settings)

    @classmethod
    def count_labels(cls, train: Sequence[TextGroup]) -> Counter[str]:
        return Counter(score=len(train))

    def keep(self, train: Sequence[TextGroup]) -> RecordView:
        """Check that the loss can learn from the examples; return the activation of the answers."""
        loss = self.ranking_loss
        for example in train:
            if reason := self._why_unusable(example):
                raise UserError(f'example {example.id}: {reason}')
        if loss.needs_order:
            self._count_equal_labels(train)
        return {'activation': loss.activation}

    def _count_equal_labels(self, train: Sequence[TextGroup]) -> None:
        """Count queries without two different labels. Raises UserError if there are no others."""
        equal, name = 'queries whose labels are all equal', f'problem.loss={self.settings.loss}'
        number = sum(len({*labels_of(example)}) == 1 for example in train)
        if number == len(train) > 0:
            raise UserError(
                f'the labels of each of the {number:,} training queries are all equal; {name} '
                'compares documents with different labels: check data.columns.scores, or set '
                'another problem.loss'
            )
        self.setup.counts[f'{equal}, from which {name} learns nothing'] += number

    def _why_unusable(self, example: TextGroup) -> str:
        """Say why the loss cannot learn from an example; '' if it can."""
        loss, name = self.ranking_loss, f'problem.loss={self.settings.loss}'
        number = len(example.texts) - 1
        if number < loss.min_documents:
            return (
                f'{number} documents, but {name} needs at least {loss.min_documents}; set '
                'data.columns.texts to the columns of the query and its documents'
            )
        if number == 1 and not example.scores:
            return 'a single document without a score; set data.columns.scores'
        reason = loss.why_unusable(labels_of(example))
        return reason and f'{reason} ({name})'

    def parse_input(self, name: str, record: RecordView) -> TextGroup:
        """Read 'query' and 'documents'."""
        query = raw_input.require_text(record, name, 'query')
        return TextGroup(name, (query, *raw_input.require_list(record, name, 'documents')))

    def encode(self, example: TextGroup) -> list[Item]:
        query, *documents = example.texts
        labels = labels_of(example)
        query_ids, *ids = self.tokenizer.encode_batch([query, *documents], special=True).ids
        return [
            tuple(
                sequence(
                    self,
                    [query_ids, document_ids],
                    {'place': np.int32(place), 'label': np.float32(labels[place])},
                )
                for place, document_ids in enumerate(ids)
            )
        ]


def labels_of(example: TextGroup) -> tuple[float, ...]:
    """Return the label of each document; without scores, 1 for the first and 0 for the others.

    Raises:
        UserError: there are no documents, or not a score for each.
    """
    number = len(example.texts) - 1
    if not number:
        raise UserError(f'example {example.id}: a query without documents')
    if len(example.scores) not in (0, number):
        raise UserError(
            f'example {example.id}: {len(example.scores)} scores, but {number} documents'
        )
    return example.scores or (1.0, *(0.0,) * (number - 1))


class RerankingTraining(base.Loss):
    """One logit for each document, and a loss on the documents of each query."""

    weights = {'reranking': 1.0}
    encoding: RerankingEncoding

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'sequence_classification': {'num_labels': 1}}

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        return {'reranking': self.encoding.ranking_loss(lists(outputs['logits'][..., 0], batch))}

    def host_outputs(self, outputs: base.Outputs, batch: Batch) -> base.HostOutputs:
        logits_RS = outputs['logits'][..., 0]
        activation = self.setup.kept.get('activation', self.setup.activation)
        score_RS = ACTIVATIONS[activation](logits_RS)
        return base.HostOutputs({'logit': logits_RS, 'score': score_RS}, {})


def lists(logits_RS: jax.Array, batch: Batch) -> ScoreBatch:
    """Arrange the slots of packed rows as lists of documents, one for each first slot of a query.

    Returns:
        R · S lists of S documents, most of them empty.
    """
    is_present_RS = jnp.asarray(batch['first_positions']) >= 0
    is_first_RS = is_present_RS & (jnp.asarray(batch['place']) == 0)
    query_RS = jnp.cumsum(is_first_RS, axis=1)
    slots = logits_RS.shape[1]
    slot_SN = jnp.arange(slots)[:, None] + jnp.arange(slots)
    chosen_SN = jnp.minimum(slot_SN, slots - 1)

    def spread(values_RS: jax.Array) -> jax.Array:
        return values_RS[:, chosen_SN].reshape(-1, slots)

    is_same = spread(query_RS) == query_RS.reshape(-1, 1)
    inside = jnp.broadcast_to(slot_SN < slots, (len(logits_RS), slots, slots)).reshape(-1, slots)
    is_in_list = is_first_RS.reshape(-1, 1) & spread(is_present_RS) & is_same & inside
    return ScoreBatch(spread(logits_RS), spread(jnp.asarray(batch['label'])), is_in_list)


class RerankingDecoder(base.Decoder[TextGroup, list[DocumentScore]]):
    """The order of the documents of each query."""

    def decode(
        self, example: TextGroup, parts: base.ExampleOutputs, calibration: base.Calibration
    ) -> list[DocumentScore]:
        (documents,) = parts
        return [DocumentScore(float(one['logit']), float(one['score'])) for one in documents]

    def score(
        self, examples: Sequence[TextGroup], predictions: Sequence[list[DocumentScore]]
    ) -> Scores:
        """Score the order of the documents, the main metric first.

        Queries with several documents: 'ndcg@10', 'mrr@10' and 'map'. All documents: 'spearman'
        and 'pearson' of logits and labels.
        """
        return Scores(dict(self.score_rows(examples, predictions)(np.arange(len(examples)))), {})

    def score_rows(
        self, examples: Sequence[TextGroup], predictions: Sequence[list[DocumentScore]]
    ) -> RowScore:
        ranked = [_ranking(*pair) for pair in zip(examples, predictions, strict=True)]
        gold = [np.array(labels_of(example)) for example in examples]
        logits = [np.array([one.logit for one in scores]) for scores in predictions]

        def score(rows_M: np.ndarray) -> dict[str, float]:
            rows = rows_M.tolist()
            known = [ranked[row] for row in rows if ranked[row]]
            means = np.mean(known, axis=0).tolist() if known else []
            found: dict[str, float] = dict(zip(_RANKING, means, strict=False))
            pairs = [np.concatenate([arrays[row] for row in rows]) for arrays in (gold, logits)]
            found['spearman'], found['pearson'] = metrics.spearman(*pairs), metrics.pearson(*pairs)
            return found

        return score if examples else lambda rows_M: {}

    def to_record(self, example: TextGroup, prediction: list[DocumentScore]) -> JsonRecord:
        query, *documents = example.texts
        order = sorted(range(len(documents)), key=lambda number: -prediction[number].logit)
        return {
            'id': example.id,
            'query': query,
            'gold': list(labels_of(example)),
            'results': [
                {'document': number, **prediction[number]._asdict(), 'text': documents[number]}
                for number in order
            ],
        }


def _ranking(example: TextGroup, prediction: Sequence[DocumentScore]) -> list[float]:
    """The values of _RANKING of a query; [] without a relevant and another document."""
    labels = labels_of(example)
    if len(labels) < 2 or max(labels) <= 0:
        return []
    names = [f'{number:09}' for number in range(len(labels), 0, -1)]  # of equal ones, the first
    ranking = {name: one.logit for name, one in zip(names, prediction, strict=True)}
    found = retrieval.of_query(ranking, dict(zip(names, labels, strict=True)), _CUTOFFS)
    return [found[name] for name in _RANKING]


RERANKING = base.Parts(RerankingEncoding, RerankingTraining, RerankingDecoder)
