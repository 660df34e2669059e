"""The model that is trained, loaded, queried and exported: encoder, decoder, named heads."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax.core import FrozenDict, freeze, unfreeze

from bert_jax.errors import UserError, unknown
from bert_jax.models.encoders import EncoderOutput, build_encoder
from bert_jax.models.flops import decoder_flops, prediction_flops, training_flops_per_token
from bert_jax.models.heads import HEADS, Head
from bert_jax.models.module import Module
from bert_jax.models.rows import Rows

if TYPE_CHECKING:
    from bert_jax.models.cache import Memory
    from bert_jax.models.head_states import HeadStates

HeadOptions = Mapping[str, Any]  # further fields of the head's class


class ModelOutput(NamedTuple):
    """What a model computes for rows.

    Attributes:
        rows: the rows that the encoder read.
        states: the encoder's states.
        heads: name of a head → its output, such as fp32 logits.
        decoder: the decoder's states of `rows.target`; None: it was not used.
    """

    rows: Rows
    states: EncoderOutput
    heads: Mapping[str, Any]
    decoder: EncoderOutput | None = None

    @property
    def head_rows(self) -> Rows:
        """The rows that the heads read: those of the decoder if there are any."""
        return self.rows if self.rows.target is None else self.rows.target


class Model(Module):
    """An encoder with named heads and, if the architecture has one, a decoder.

    With a target (`Rows.target`) the decoder reads it, and all heads read the decoder's states;
    otherwise they read the encoder's. In BART, the target of fine-tuning heads is the text itself
    (`reads_text_twice`). Without a decoder, a target is left to the heads.

    Parameters: `encoder`, `decoder`, and for each head NAME/head and, if it reads other states than
    those of the last layer and they have parameters, NAME/states.

    Attributes:
        architecture: of encoder and decoder.
        compute: precision and kernels.
        heads: name in HEADS → options of the head.
        is_causal: whether positions do not attend to later positions.

    Raises:
        UserError: a head is not in HEADS.
    """

    heads: Mapping[str, HeadOptions] = FrozenDict()
    is_causal: bool = False

    def __post_init__(self) -> None:
        self.heads = freeze({**self.heads})  # hashable: a model can be static in jax.jit
        super().__post_init__()

    def setup(self) -> None:
        self.encoder = build_encoder(self.architecture, self.compute)
        if (stack := self.architecture.decoder) is not None:
            from bert_jax.models.decoders.transformer import TransformerDecoder

            settings = (self.architecture.of_decoder, self.compute)
            has_tokens = not stack.shared_embeddings
            self.decoder = TransformerDecoder(*settings, has_tokens=has_tokens)
        for name in self.heads:
            head = self.make_head(name)
            setattr(self, name, _Part(head, self._make_states(head)))

    def __call__(
        self, rows: Rows, dropout_seeds_B: jax.Array | None = None, *, all_hidden: bool = False
    ) -> ModelOutput:
        """Compute the states of the encoder and the outputs of the heads.

        Args:
            rows: what the encoder and the heads read.
            dropout_seeds_B: uint32, one per row (dropout.py); None for evaluation.
            all_hidden: also return the states of every layer.
        """
        if rows.is_prefix_BT is not None and not (self.is_causal and self.encoder.supports_prefix):
            raise UserError('a prefix that all positions see needs a causal Transformer')
        all_hidden |= self.architecture.head_states != 'last'
        states = self.encoder(rows, dropout_seeds_B, all_hidden=all_hidden, causal=self.is_causal)
        target = rows.target
        if target is None and self.reads_text_twice():
            target = rows.last_token_first()
        if target is None and self.architecture.decoder is not None and self.is_initializing():
            target = rows  # creates the decoder's parameters
        if target is None or self.architecture.decoder is None:
            return self.apply_heads(rows, states, dropout_seeds_B)
        memory = self._memory(rows, states)
        output = self.decode(target, memory, dropout_seeds_B, all_hidden=all_hidden)
        return output._replace(rows=rows, states=states)

    def memory(self, rows: Rows) -> 'Memory':
        """Encode rows for decoding: states, and their keys and values in the decoder's layers."""
        states = self.encoder(rows, None)
        memory = self._memory(rows, states)
        return self.decoder.remember(memory)

    def decode(
        self,
        target: Rows,
        memory: 'Memory',
        dropout_seeds_B: jax.Array | None = None,
        *,
        all_hidden: bool = False,
    ) -> ModelOutput:
        """Compute the decoder's states, and the outputs of the heads for them.

        Args:
            target: the decoder's rows, as `Rows.target`; with a cache, rows that continue it.
            memory: what `memory` computed for the encoder's rows.
            dropout_seeds_B: uint32, one per row; None for evaluation.
            all_hidden: also return the states of every layer.

        Returns:
            The output, whose `rows` are the target and whose `states` are the decoder's.
        """
        table_VE = self.encoder.embedding_table()
        assert table_VE is not None
        arguments = (target, memory, table_VE, dropout_seeds_B)
        states = self.decoder(*arguments, all_hidden=all_hidden)
        states = states._replace(embedding_VE=self.decoder.token_table(table_VE))
        output = self._apply_heads(target, states, dropout_seeds_B)
        return output._replace(decoder=output.states)

    def _memory(self, rows: Rows, states: EncoderOutput) -> 'Memory':
        """What the decoder reads of encoded rows."""
        from bert_jax.models.cache import Memory  # encoders do without it

        if states.memory is not None:
            return states.memory
        segment_ids_BU = rows.segment_ids_BT
        if segment_ids_BU is not None:
            segment_ids_BU = jnp.asarray(segment_ids_BU)
        return Memory(states.hidden_BTD, jnp.asarray(rows.attention_mask_BT), segment_ids_BU)

    def apply_heads(
        self, rows: Rows, states: EncoderOutput, dropout_seeds_B: jax.Array | None
    ) -> ModelOutput:
        """Compute the outputs of the heads for encoded rows."""
        states = states._replace(embedding_VE=self.encoder.embedding_table())
        return self._apply_heads(rows, states, dropout_seeds_B)

    def _apply_heads(
        self, rows: Rows, states: EncoderOutput, dropout_seeds_B: jax.Array | None
    ) -> ModelOutput:
        heads = {}
        for name in self.heads:
            read = states
            if HEADS[name].shares_encoder:
                variables: Any = self.encoder.variables
                read = states._replace(parameters=unfreeze(variables)['params'])
            heads[name] = getattr(self, name)(read, rows, dropout_seeds_B)
        return ModelOutput(rows, states, heads)

    @nn.nowrap
    def make_head(self, name: str) -> Head:
        """Make one of the heads, without parameters."""
        if name not in HEADS:
            raise unknown('head', name, HEADS)
        options: Mapping[str, Any] = self.heads[name]
        return HEADS[name](self.architecture, self.compute, **options, parent=None)

    @nn.nowrap
    def _make_states(self, head: Head) -> 'HeadStates | None':
        """Make the states of a head; None: those of the encoder's last layer."""
        if self.architecture.reads_last_layer or not head.reads_head_states:
            return None
        from bert_jax.models.head_states import HeadStates  # pretraining does without it

        return HeadStates(self.architecture, self.compute, parent=None)

    @nn.nowrap
    def with_heads(self, *names: str) -> 'Model':
        """Return the encoder with only these of its heads; it reads the same parameters."""
        heads = {name: self.heads[name] for name in names}
        return Model(self.architecture, self.compute, heads, self.is_causal)

    @nn.nowrap
    def reads_text_twice(self) -> bool:
        """Whether the decoder reads the encoder's text once more, for classes of texts or tokens.

        Only a decoder that starts with the last token of a text can read it one token behind.
        Lewis et al. 2020 (BART, arXiv 1910.13461), section 3.
        """
        stack = self.architecture.decoder
        is_bart = stack is not None and stack.start == 'sep'
        return is_bart and any(HEADS[name].reads_head_states for name in self.heads)

    @nn.nowrap
    def reads_pooler(self) -> bool:
        """Whether the encoder has a pooler that a head reads."""
        heads = map(self.make_head, self.heads)
        return self.architecture.pooler and any(head.reads_pooler() for head in heads)

    @nn.nowrap
    def flops_per_token(self, sequence_length: int, num_predictions: int) -> float:
        """Count the operations of a training step per position of the batch.

        Args:
            sequence_length: tokens per sequence.
            num_predictions: maximum number of masked tokens per sequence.
        """
        heads, sizes = [*map(self.make_head, self.heads)], (sequence_length, num_predictions)
        architecture = self.architecture
        if not any(head.reads_decoded for head in heads):
            architecture = architecture.without_mask_decoder()
        products = sum(head.vocabulary_products(*sizes) for head in heads)
        flops = sum(head.flops(*sizes) for head in heads)
        flops += sum(
            states.flops(sequence_length) for states in map(self._make_states, heads) if states
        )
        if self.reads_text_twice():
            flops += decoder_flops(architecture, sequence_length, sequence_length)
        return training_flops_per_token(architecture, sequence_length, products, flops)

    @nn.nowrap
    def flops_per_row(self, source_length: int, target_length: int, num_predictions: int) -> float:
        """Count the operations of a training step per row, with a decoder if it has a target.

        Args:
            source_length: tokens that the encoder reads.
            target_length: tokens that the decoder reads, all of which predict one; 0: none.
            num_predictions: as in `flops_per_token`, without a target.
        """
        if not target_length:
            return source_length * self.flops_per_token(source_length, num_predictions)
        architecture = self.architecture
        encoder = source_length * training_flops_per_token(architecture, source_length, 0)
        decoder = decoder_flops(architecture, source_length, target_length)
        products = len(self.heads) * target_length
        return encoder + 3 * (decoder + products * prediction_flops(architecture))


class _Part(nn.Module):
    """Keeps the parameters of a head as `head`, and those of the states it reads as `states`."""

    head: Head
    states: 'HeadStates | None'

    def __call__(
        self, states: EncoderOutput, rows: Rows, dropout_seeds_B: jax.Array | None = None
    ) -> Any:
        if self.states is not None:
            states = self.states(states, rows)
        return self.head(states, rows, dropout_seeds_B)
