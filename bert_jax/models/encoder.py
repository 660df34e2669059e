"""The encoder: embeddings, a stack of blocks, a pooler."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from bert_jax.errors import UserError
from bert_jax.models import kernels
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.attention import Context, LayerValues, layer_values, mask_bias, visible_groups
from bert_jax.models.block import Block
from bert_jax.models.convolution import Convolution
from bert_jax.models.disentangled import RelativePositions
from bert_jax.models.dropout import fold, separate
from bert_jax.models.embeddings import Embeddings
from bert_jax.models.linear import Dense
from bert_jax.models.normalization import make_norm
from bert_jax.models.packed_rows import gather_positions, segment_starts
from bert_jax.models.partitioning import constrain

_CONVOLUTION, _DECODER = 2**29, 2**30  # dropout sites, beyond the numbers of layers


class EncoderOutput(NamedTuple):
    """hidden_BTD: states of the last layer (normalized, with residual 'pre'), in the compute dtype.

    pooled_BD: tanh of a learned map of the first position's state, or with given first positions of
        theirs, [B, S, D]; None without a pooler.
    all_hidden_LBTD: if asked for, the embeddings' output and every layer's, L = num_layers + 1;
        the last is hidden_BTD.
    decoded_BTD: states to predict masked tokens from: with the architecture's mask_decoder those
        of the last layer run again with absolute positions, else hidden_BTD.
    """

    hidden_BTD: jax.Array
    pooled_BD: jax.Array | None
    all_hidden_LBTD: jax.Array | None = None
    decoded_BTD: jax.Array | None = None


class Encoder(nn.Module):
    """A bidirectional Transformer encoder (Devlin et al. 2019, section 3).

    Parameters: embeddings, layers_0 … layers_{L−1} (with compute.scan_layers one stacked `layers`,
    see `stack_layers`; if all layers share theirs, layers_0 alone), final_norm with residual 'pre',
    pooler, relative_positions, convolution; fp32. Raises UserError for scan_layers where the layers
    cannot be stacked.
    """

    architecture: Architecture
    compute: Compute

    def setup(self):
        settings = (self.architecture, self.compute)
        kernels.check(*settings)
        size, num_layers = self.architecture.hidden_size, self.architecture.num_layers
        self.embeddings = Embeddings(*settings)
        layer = _Layer
        if self.compute.remat:
            layer = nn.remat(layer, prevent_cse=not self.compute.scan_layers)
        if not self.compute.scan_layers:
            if not self.is_initializing():  # under nn.jit a seed would give other parameters
                layer = nn.jit(layer)  # equal layers are traced and lowered once; inlined by XLA
            first = layer(*settings, not self.architecture.first_norm)
            others = 0 if self.architecture.shared_layers else num_layers - 1
            self.layers = [first] + [layer(*settings) for _ in range(others)]
        elif not self.architecture.equal_layers:
            raise UserError(
                'scan_layers: the layers of this architecture share parameters or differ in them, '
                'so they cannot be stacked; set scan_layers=False'
            )
        else:
            self.layers = nn.scan(
                layer,
                variable_axes={'params': 0},
                split_rngs={'params': True},
                in_axes=(0, nn.broadcast, 0),
                length=num_layers,
                metadata_params={nn.PARTITION_NAME: 'layers'},
            )(*settings)
        if self.architecture.residual == 'pre':
            self.final_norm = make_norm(*settings)
        if self.architecture.attention == 'disentangled':
            self.relative_positions = RelativePositions(*settings)
        if self.architecture.convolution_width is not None:
            self.convolution = Convolution(*settings)
        if self.architecture.pooler:
            names = ('embed', 'features')
            self.pooler = Dense('BD,DE->BE', (size, size), names, *settings, use_bias=True)

    def __call__(
        self,
        input_ids_BT: jax.Array,
        attention_mask_BT: jax.Array,
        token_type_ids_BT: jax.Array | None = None,
        dropout_seeds_B: jax.Array | None = None,
        *,
        all_hidden: bool = False,
        causal: bool = False,
        segment_ids_BT: jax.Array | None = None,
        first_positions_BS: jax.Array | None = None,
    ) -> EncoderOutput:
        """Encodes a batch of token ids.

        input_ids_BT, token_type_ids_BT: int32; without types every position is of type 0.
        attention_mask_BT: 1 for real positions, 0 for padding.
        dropout_seeds_B: uint32, one per example (see dropout.py); None for evaluation.
        all_hidden: also return the states of every layer.
        causal: no position sees one to its right.
        segment_ids_BT: int32, of several sequences in a row, each a run of one id, padding another:
            no position sees those of another id, and positions count from the run's first one.
        first_positions_BS: int32, which states to pool; those below 0 give something, too.
        token_type_ids_BT changes nothing where the architecture has fewer than two types.
        Raises UserError for a sequence longer than architecture.max_length, and for causal where
        a convolution sees both sides.
        """
        if causal and self.architecture.convolution_width is not None:
            raise UserError('this architecture has a convolution, which sees tokens to the right')
        positions_BT = None
        if segment_ids_BT is not None:
            positions_BT = jnp.arange(input_ids_BT.shape[1]) - segment_starts(segment_ids_BT)
        ids = (input_ids_BT, attention_mask_BT, token_type_ids_BT)
        x_BTD = self.embeddings(*ids, fold(dropout_seeds_B, 0), positions_BT)
        embedded_BTD = x_BTD
        context = self._context(attention_mask_BT, causal, segment_ids_BT, positions_BT)
        x_BTD, hidden_LBTD = self._run_layers(x_BTD, context, dropout_seeds_B)
        decoded_BTD = x_BTD
        if self.architecture.mask_decoder:
            before_BTD = hidden_LBTD[-2] if self.architecture.num_layers > 1 else embedded_BTD
            decoded_BTD = self._decode(before_BTD, context, dropout_seeds_B)
        if self.architecture.residual == 'pre':
            x_BTD = decoded_BTD = self.final_norm(x_BTD)
            hidden_LBTD = hidden_LBTD.at[-1].set(x_BTD)
        pooled_BD = None
        if self.architecture.pooler:
            pooled_BD = self._pool(x_BTD, first_positions_BS)
        if not all_hidden:
            return EncoderOutput(x_BTD, pooled_BD, decoded_BTD=decoded_BTD)
        all_hidden_LBTD = jnp.concatenate([embedded_BTD[None], hidden_LBTD])
        return EncoderOutput(x_BTD, pooled_BD, all_hidden_LBTD, decoded_BTD)

    def _pool(self, x_BTD, first_positions_BS):
        if first_positions_BS is None:
            return jnp.tanh(self.pooler(constrain(x_BTD[:, 0], ('batch', 'embed'))))
        x_BSD = gather_positions(x_BTD, jnp.maximum(first_positions_BS, 0))
        x_XD = constrain(x_BSD.reshape(-1, x_BSD.shape[-1]), ('batch', 'embed'))
        return jnp.tanh(self.pooler(x_XD)).reshape(x_BSD.shape)

    def _context(self, attention_mask_BT, causal: bool, segment_ids_BT, positions_BT) -> Context:
        bias_B11T = mask_bias(attention_mask_BT, causal, segment_ids_BT)
        group_BT = None if causal else visible_groups(attention_mask_BT, segment_ids_BT)
        context = Context(
            bias_B11T, group_BT, positions_BT=positions_BT, segment_ids_BT=segment_ids_BT
        )
        if self.architecture.attention != 'disentangled':
            return context
        vectors_RD, rows_TS = self.relative_positions(attention_mask_BT.shape[1])
        return context._replace(relative_RD=vectors_RD, rows_TS=jnp.asarray(rows_TS))

    def _run_layers(self, x_BTD, context: Context, seeds_B):
        """The last state and the stack of all layers' states [L, B, T, D]."""
        num_layers, values_L = self.architecture.num_layers, layer_values(self.architecture)
        seeds_LB = fold(seeds_B, np.arange(1, num_layers + 1)[:, None])
        if self.compute.scan_layers:
            return self.layers(x_BTD, jax.tree.map(jnp.asarray, values_L), context, seeds_LB)
        states = []
        for number, layer_seeds_B in enumerate(separate(seeds_LB, num_layers)):
            layer = self.layers[0 if self.architecture.shared_layers else number]
            values = jax.tree.map(lambda leaf_L, number=number: leaf_L[number], values_L)
            after_BTD, _ = layer(x_BTD, values, context, layer_seeds_B)
            if number == 0 and self.architecture.convolution_width is not None:
                after_BTD = self.convolution(
                    x_BTD, after_BTD, fold(seeds_B, _CONVOLUTION), context.segment_ids_BT
                )
            x_BTD = after_BTD
            states.append(x_BTD)
        return x_BTD, jnp.stack(states)  # compiled away unless asked for

    def _decode(self, before_BTD, context: Context, seeds_B):
        """The last layer run twice, keys and values from the states before it, queries at first
        these states with absolute positions added, then what came out (He et al. 2021, section 3.2;
        EnhancedMaskDecoder of microsoft/DeBERTa, masked_language_model.py)."""
        context = context._replace(source_BTD=before_BTD)
        values = jax.tree.map(lambda leaf_L: leaf_L[-1], layer_values(self.architecture))
        position_TD = self.embeddings.absolute(before_BTD.shape[1], context.positions_BT)
        x_BTD = (before_BTD + position_TD).astype(before_BTD.dtype)
        for number in range(2):
            layer_seeds_B = fold(seeds_B, _DECODER + 1 + number)
            x_BTD, _ = self._last_layer()(x_BTD, values, context, layer_seeds_B)
        return x_BTD

    def _last_layer(self):
        if not self.compute.scan_layers:
            return self.layers[-1]
        stacked = nn.unbox(self.layers.variables)
        last = jax.tree.map(lambda leaf_L: leaf_L[-1], stacked)
        return functools.partial(_Layer(self.architecture, self.compute, parent=None).apply, last)

    def embedding_table(self) -> jax.Array:
        """The token embeddings, [padded_vocab_size, embedding width] fp32, for a decoder tied to
        them."""
        return self.embeddings.token_VD


class _Layer(Block):
    """A block in the form of a step of nn.scan: (x, values, …) → (x, x)."""

    def __call__(self, x_BTD, values: LayerValues, context: Context, seeds_B):
        x_BTD = super().__call__(x_BTD, values, context, seeds_B)
        return x_BTD, x_BTD
