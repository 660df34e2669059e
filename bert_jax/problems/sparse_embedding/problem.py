"""The fine-tuning problem of sparse vectors (SPLADE): a weight for each term of the vocabulary."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from scipy import sparse

from bert_jax.averages import Term, Terms
from bert_jax.errors import UserError, warn
from bert_jax.labels.examples import TextGroup
from bert_jax.models.model import HeadOptions
from bert_jax.models.rows import Rows
from bert_jax.models.sparse_pooling import SparsePooling
from bert_jax.problems import base, sparse_embedding
from bert_jax.problems.embedding import in_batch
from bert_jax.problems.embedding.base import EmbeddingLoss, VectorBatch
from bert_jax.problems.embedding.problem import EmbeddingEncoding, EmbeddingTraining
from bert_jax.problems.sparse_embedding import losses
from bert_jax.problems.sparse_embedding.decoder import SparseDecoder
from bert_jax.types import Batch, RecordView, Tree


class SparseEncoding(EmbeddingEncoding):
    """Each text of an example is an item of its own, as for dense vectors."""

    @functools.cached_property
    def embedding_loss(self) -> EmbeddingLoss:
        return sparse_embedding.make(self.settings)

    def batch_of(
        self, examples: Sequence[TextGroup], vectors: Sequence[sparse.csr_array]
    ) -> VectorBatch:
        return super().batch_of(examples, [vectors_NV.toarray() for vectors_NV in vectors])

    def keep(self, train: Sequence[TextGroup]) -> RecordView:
        """Also keep how logits become weights: `problem`, or the SparseEncoder folder's way."""
        return {**super().keep(train), 'sparse': self._sparse_pooling()._asdict()}

    def compared_by(self) -> str:
        return self.embedding_loss.compared_by()

    def _sparse_pooling(self) -> SparsePooling:
        folder = self.setup.kept.get('modules', {})
        given = SparsePooling(**folder.get('sparse') or {})
        settings = self.settings
        if any(folder.get('prompts', {}).values()) and not (
            settings.query_prompt or settings.document_prompt
        ):
            warn(
                f'init_from was trained with the prompts {dict(folder["prompts"])}, which are not '
                'used; set problem.query_prompt and problem.document_prompt'
            )
        return SparsePooling(
            settings.term_pooling or given.strategy,
            settings.activation or given.activation,
            settings.max_active or None,
        )

    def _pooling(self) -> str:
        return 'max'  # of EmbeddingEncoding.keep; the vectors of terms have their own pooling


@dataclasses.dataclass(frozen=True, eq=False)
class SparseTraining(EmbeddingTraining):
    """A loss on the vectors of the whole batch, and a regularizer that makes them sparse.

    Attributes:
        progress: Share of the run that has passed, for the warm-up of the regularizer.
    """

    encoding: SparseEncoding
    progress: ArrayLike = 1.0

    weights = {'embedding': 1.0, 'regularizer': 1.0}

    def __post_init__(self) -> None:
        """Raise UserError if nothing makes the vectors sparse."""
        if not self.settings.document_weight:
            raise UserError(
                'problem.document_weight is 0, so vectors have a weight for nearly every term; set '
                'it above 0'
            )

    def heads(self) -> Mapping[str, HeadOptions]:
        return {'mlm': {'predicts_everywhere': True}}

    def outputs(self, heads: Mapping[str, Tree], rows: Rows) -> base.Outputs:
        """Return 'vectors', the weights of terms, float32 [R, S, V]."""
        pooling = SparsePooling(**self.setup.kept.get('sparse', {}))
        return {'vectors': pooling.pool(heads['mlm'], rows)}

    def at(self, progress: ArrayLike) -> 'SparseTraining':
        """Return the loss with the warm-up of the regularizer after a share of the run."""
        return dataclasses.replace(self, progress=progress)

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return 'embedding', 'regularizer', and what is only logged.

        'accuracy' as for dense vectors; 'query_flops' and 'document_flops' without
        their weights; 'query_active' and 'document_active', the mean number of terms.
        """
        vectors = self.collect(outputs['vectors'], batch)
        number = jnp.float32(len(vectors.vectors_BND))
        factor = losses.warmup(self.settings.warmup, self.settings.warmup_length, self.progress)
        values = self.values(vectors, factor)
        return {name: Term(number * value, number) for name, value in values.items()}

    def values(self, batch: VectorBatch, factor: jax.Array) -> dict[str, jax.Array]:
        """Return the values of the terms; `factor` is that of the regularizer."""
        settings, vectors_BND = self.settings, batch.vectors_BND
        first = 0 if settings.documents_only else 1
        sides = {
            'query': (vectors_BND[:, 0], batch.is_present_BN[:, 0]),
            'document': (
                vectors_BND[:, first:].reshape(-1, vectors_BND.shape[-1]),
                batch.is_present_BN[:, first:].reshape(-1),
            ),
        }
        threshold = settings.active_threshold
        flops = {f'{side}_flops': losses.flops(*own, threshold) for side, own in sides.items()}
        active = {f'{side}_active': losses.mean_active(*own) for side, own in sides.items()}
        query_weight = 0 if settings.documents_only else settings.query_weight
        return {
            'embedding': self.encoding.embedding_loss(batch),
            'regularizer': factor
            * (
                query_weight * flops['query_flops']
                + settings.document_weight * flops['document_flops']
            ),
            'accuracy': in_batch.accuracy(batch, self.encoding.compared_by()),
            **flops,
            **active,
        }

    def weighted_values(self, batch: VectorBatch) -> dict[str, jax.Array]:
        """Return the terms with a weight, as after the warm-up."""
        values = self.values(batch, jnp.float32(1))
        return {name: values[name] for name in self.weights}

    def compact(self, values: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """Keep the terms of a text that have a weight, and these weights."""
        (term_E,) = np.nonzero(values['vector'])
        weight_E = values['vector'][term_E]
        return {'term': term_E, 'weight': weight_E, 'size': np.array(len(values['vector']))}


SPARSE_EMBEDDING = base.Parts(SparseEncoding, SparseTraining, SparseDecoder)
