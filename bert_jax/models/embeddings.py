"""Token, position and type embeddings."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.errors import UserError
from bert_jax.models.dropout import dropout
from bert_jax.models.linear import weight_init
from bert_jax.models.module import Module
from bert_jax.models.partitioning import constrain, param
from bert_jax.models.rows import PromptRows, Rows
from bert_jax.types import Array


class Embeddings(Module):
    """Sum of token, position and type vectors; norm, dropout and projection to hidden_size.

    Attributes:
        has_tokens: whether the module has token embeddings of its own.
        token_VE: fp32 [padded_vocab_size, embedding_width], rows beyond vocab_size zero; None if
            vectors are made of characters.
    """

    has_tokens: bool = True

    def setup(self) -> None:
        architecture = self.architecture
        width, init = architecture.embedding_width, weight_init(architecture)
        self.token_VE = None
        if architecture.characters is not None:
            from bert_jax.models.characters import CharacterEmbeddings  # few encoders have them

            self.characters = CharacterEmbeddings(architecture, self.compute)
        elif self.has_tokens:
            token_init = _zero_from_row(architecture.vocab_size, init)
            token_shape = (architecture.padded_vocab_size, width)
            self.token_VE = param(self, 'token', token_init, token_shape, ('vocab', 'embed'))
        if architecture.positions.kind != 'none':
            shape = (architecture.max_position_embeddings, width)
            self.position_TE = param(self, 'position', init, shape, ('positions', 'embed'))
        if architecture.type_vocab_size:
            shape = (architecture.type_vocab_size, width)
            self.type_YE = param(self, 'type', init, shape, ('types', 'embed'))
        if architecture.norms.embeddings:
            self.norm = self.make_norm()
        if architecture.embedding_size is not None:
            shape = (width, architecture.hidden_size)
            self.projection = self.make_dense('BTE,ED->BTD', shape, ('features', 'embed'))
        self.tuning = self.make_tuning('embeddings')

    def __call__(
        self,
        rows: Rows,
        seeds_B: jax.Array | None = None,
        prompts: PromptRows | None = None,
        token_VE: jax.Array | None = None,
    ) -> jax.Array:
        """Return [B, T, D] in the compute dtype; with prompts, [B, T + S · L, D].

        Args:
            rows: token ids.
            seeds_B: uint32 dropout seeds; None for evaluation.
            prompts: where the vectors of a tuned prompt are inserted; None: no prompts.
            token_VE: token embeddings; None: those of the module.

        Raises:
            UserError: a row of one sequence is longer than the architecture's max_length.
        """
        architecture, positions_BT = self.architecture, rows.positions()
        length = rows.input_ids_BT.shape[1]
        if positions_BT is None and length > architecture.max_length:
            raise UserError(
                f'sequence length {length} exceeds the {architecture.max_length} '
                'positions of the model (max_position_embeddings)'
            )
        is_token_BT = rows.is_token_BT
        x_BTE = constrain(self._token_vectors(rows, token_VE), ('batch', 'length', 'embed'))
        if architecture.token_dropout is not None:
            x_BTE = x_BTE * self._token_dropout(rows)[..., None]
        if architecture.scaled_embeddings:
            x_BTE = x_BTE * architecture.embedding_width**0.5
        if architecture.positions.kind == 'learned':
            x_BTE = x_BTE + self.position_vectors(length, positions_BT)
        elif architecture.positions.kind == 'offset':
            rows_BT = self._offset_by_padding(is_token_BT, positions_BT)
            x_BTE = x_BTE + self.position_vectors(length, rows_BT)
        if architecture.type_vocab_size:
            x_BTE = x_BTE + self._type_vectors(rows.token_type_ids_BT)
        if prompts is not None:
            vectors_LE = self.tuning(self.token_VE)
            shape = (*prompts.first_BS.shape, *vectors_LE.shape)
            x_BTE = prompts.insert(x_BTE, jnp.broadcast_to(vectors_LE, shape))
            is_token_BT = prompts.insert_first_values(is_token_BT, absent=False)
        x_BTE = x_BTE.astype(self.compute.activation_dtype)
        if architecture.norms.embeddings:
            x_BTE = self.norm(x_BTE)
        if architecture.embedding_mask:
            x_BTE = x_BTE * is_token_BT[..., None]
        x_BTE = dropout(x_BTE, architecture.hidden_dropout, seeds_B)
        x_BTD = x_BTE if architecture.embedding_size is None else self.projection(x_BTE)
        return constrain(x_BTD, ('batch', 'length', 'embed'))

    def _token_vectors(self, rows: Rows, token_VE: jax.Array | None) -> jax.Array:
        table_VE = self.token_VE if token_VE is None else token_VE
        if table_VE is None:
            vectors_BTE: jax.Array = self.characters(rows.input_ids_BT)
            return vectors_BTE
        # Unshard embed first: gathering from a table sharded along embed would exchange vectors.
        return constrain(table_VE, ('vocab', None))[rows.input_ids_BT]

    def _token_dropout(self, rows: Rows) -> jax.Array:
        """fp32 [B, T]: the factor of each token's vector, 0 for masks; see `TokenDropout`."""
        options = self.architecture.token_dropout
        assert options is not None
        is_mask_BT = jnp.asarray(rows.input_ids_BT) == options.mask_id
        member_BST = rows.members()
        share_BS = (member_BST & is_mask_BT[:, None]).sum(2) / jnp.maximum(member_BST.sum(2), 1)
        factor_BS = (1 - options.rate) / jnp.maximum(1 - share_BS, 1e-6)
        factor_BT = jnp.einsum('BS,BST->BT', factor_BS, member_BST.astype(jnp.float32))
        return jnp.where(is_mask_BT, 0, factor_BT)

    def position_vectors(self, length: int, rows_BT: jax.Array | None = None) -> jax.Array:
        """Return vectors [T, E] of the first positions, or [B, T, E] of the given table rows."""
        if rows_BT is None:
            return self.position_TE[:length]
        position_TE = constrain(self.position_TE, ('positions', None))
        return constrain(position_TE[rows_BT], ('batch', 'length', 'embed'))

    def _offset_by_padding(
        self, is_token_BT: jax.Array, positions_BT: jax.Array | None
    ) -> jax.Array:
        """int32 [B, T] rows of the position table."""
        positions = self.architecture.positions
        if positions.kind == 'offset' and positions.counts_padding:
            is_token_BT = jnp.ones_like(is_token_BT)
        is_token_BT = is_token_BT.astype(jnp.int32)
        count_BT = jnp.cumsum(is_token_BT, axis=1) if positions_BT is None else positions_BT + 1
        rows_BT = count_BT * is_token_BT + self.architecture.first_position - 1
        return jnp.maximum(rows_BT, 0)

    def _type_vectors(self, token_type_ids_BT: Array | None) -> jax.Array:
        count = self.architecture.type_vocab_size
        if token_type_ids_BT is None or count == 1:
            return self.type_YE[0]
        # One-hot: the gradient is a product, not a scatter into a handful of rows.
        one_hot_BTY = jax.nn.one_hot(token_type_ids_BT, count)
        return jnp.einsum('BTY,YE->BTE', one_hot_BTY, self.type_YE, precision='highest')


def _zero_from_row(row: int, init: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Wrap `init` to return zeros from this row on."""

    def padded_init(key: jax.Array, shape: tuple[int, int]) -> jax.Array:
        values = init(key, (row, shape[1]))
        return jax.lax.pad(values, np.float32(0), [(0, shape[0] - row, 0), (0, 0, 0)])

    return padded_init
