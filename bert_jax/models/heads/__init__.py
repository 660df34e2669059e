"""Heads: their interface and their table.

To add a head, add a subclass of `Head` in a file here, and a line to HEADS.
"""

from collections.abc import Collection
from typing import Any, ClassVar

import jax
from flax import linen as nn

from bert_jax.lazy_table import LazyTable
from bert_jax.models.encoders import EncoderOutput
from bert_jax.models.module import Module
from bert_jax.models.rows import Rows


class Head(Module):
    """Encoder states in, predictions out. Further fields of a subclass are the head's options.

    Attributes:
        architecture: the encoder's architecture.
        compute: precision and kernels.
        reads_decoded: whether the head reads `EncoderOutput.decoded_BTD`, of a mask decoder.
        reads_head_states: whether `states.hidden_BTD` are those that `architecture.head_states`
            and `head_lstm` describe, which may be wider; otherwise those of the last layer.
        shares_encoder: whether the head reads `EncoderOutput.parameters`, to compute with layers of
            the encoder.
        published: names in HEADS under which published checkpoints have the head. A head with
            another name belongs to a run: it is left out when the run is exported or fine-tuned.
        is_fine_tuned: whether the head learns from labeled examples, not from text alone.
        predicts_tokens: whether the head gives logits of all tokens of the vocabulary. Its
            parameters `bias` and `decoder`, if it has them, have a row for each token.
        is_pair: whether the head reads what `architecture.pair_pooling` says.
        has_labels: whether the head has the option `num_labels`.
        is_module: whether folders of sentence-transformers have the head, as a module.
        is_per_token: whether the output has an axis of positions.
        writes: whether texts are written with the head, token by token from left to right.
    """

    reads_decoded: ClassVar[bool] = False
    reads_head_states: ClassVar[bool] = False
    shares_encoder: ClassVar[bool] = False
    published: ClassVar[tuple[str, ...]] = ()
    is_fine_tuned: ClassVar[bool] = False
    predicts_tokens: ClassVar[bool] = False
    is_pair: ClassVar[bool] = False
    has_labels: ClassVar[bool] = False
    is_module: ClassVar[bool] = False
    is_per_token: ClassVar[bool] = False
    writes: ClassVar[bool] = False

    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> Any:
        """Compute predictions, such as fp32 logits.

        Args:
            states: the encoder's states for the rows.
            rows: the rows that were encoded, with the `targets` and `labels` that say where to
                predict.
            dropout_seeds_B: uint32, one per row (dropout.py); None for evaluation.
        """
        raise NotImplementedError

    @nn.nowrap
    def reads_pooler(self) -> bool:
        """Whether the head reads the pooled state."""
        return False

    @nn.nowrap
    def vocabulary_products(self, sequence_length: int, num_predictions: int) -> int:
        """Return how many states per sequence are projected onto the vocabulary.

        Args:
            sequence_length: tokens per sequence.
            num_predictions: maximum number of masked tokens per sequence.
        """
        return 0

    @nn.nowrap
    def flops(self, sequence_length: int, num_predictions: int) -> int:
        """Return the forward operations per sequence of the other matrix products."""
        return 0


# Name of a head, and of its parameters → its class.
HEADS: LazyTable[type[Head]] = LazyTable(
    {
        'mlm': 'bert_jax.models.heads.prediction:MaskedLanguageModelHead',
        'nsp': 'bert_jax.models.heads.prediction:NextSentenceHead',
        'sop': 'bert_jax.models.heads.prediction:NextSentenceHead',
        'bilm': 'bert_jax.models.heads.bidirectional:BidirectionalLanguageModelHead',
        'clm': 'bert_jax.models.heads.prediction:NextTokenHead',
        'plm': 'bert_jax.models.heads.permuted:PermutedTokenHead',
        'seq2seq': 'bert_jax.models.heads.prediction:NextTokenHead',
        'rtd': 'bert_jax.models.heads.prediction:ReplacedTokenHead',
        'sbo': 'bert_jax.models.heads.span_boundary:SpanBoundaryHead',
        'permutation': 'bert_jax.models.heads.prediction:ReplacedTokenHead',
        'deletion': 'bert_jax.models.heads.prediction:ReplacedTokenHead',
        'deletion_token': 'bert_jax.models.heads.prediction:DeletedTokenHead',
        'insertion': 'bert_jax.models.heads.prediction:ReplacedTokenHead',
        'substitution': 'bert_jax.models.heads.prediction:ReplacedTokenHead',
        'sequence_classification': (
            'bert_jax.models.heads.classification:SequenceClassificationHead'
        ),
        'token_classification': 'bert_jax.models.heads.classification:TokenClassificationHead',
        'question_answering': 'bert_jax.models.heads.classification:QuestionAnsweringHead',
        'multiple_choice': 'bert_jax.models.heads.classification:MultipleChoiceHead',
        'relation': 'bert_jax.models.heads.relations:MarkedPairHead',
        'spans': 'bert_jax.models.heads.spans:SpanClassificationHead',
        'biaffine': 'bert_jax.models.heads.biaffine:BiaffineHead',
        'embedding': 'bert_jax.models.heads.embedding:EmbeddingHead',
        'late_interaction': 'bert_jax.models.heads.late_interaction:LateInteractionHead',
        'reconstruction': 'bert_jax.models.heads.reconstruction:ReconstructionHead',
        'crf': 'bert_jax.models.heads.linear_chain:LinearChain',
    }
)


def published_heads(names: Collection[str]) -> tuple[str, ...]:
    """Return those names that are heads of published checkpoints, in the order of HEADS."""
    return tuple(name for name in HEADS if name in names and name in HEADS[name].published)


def without_module(names: Collection[str]) -> list[str]:
    """Return those names that are no heads which folders of sentence-transformers have."""
    return [name for name in names if name not in HEADS or not HEADS[name].is_module]


def has_token_rows(name: str) -> bool:
    """Whether a parameter, such as 'mlm/head/bias', has a row for each token."""
    part, _, rest = name.partition('/')
    if part in HEADS:
        return HEADS[part].predicts_tokens and rest in ('head/bias', 'head/decoder')
    return name in ('encoder/embeddings/token', 'decoder/embeddings/token')
