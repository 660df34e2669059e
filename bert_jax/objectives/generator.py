"""Replaces tokens by samples of a small masked language model, the generator.

Source: Clark et al. 2020 (ELECTRA, arXiv 2003.10555), section 2.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.core import unfreeze

from bert_jax.errors import UserError, unknown
from bert_jax.models.architecture import Architecture
from bert_jax.models.dropout import fold_in, random_bits
from bert_jax.models.encoders import Encoder, build_encoder
from bert_jax.models.heads.prediction import MaskedLanguageModelHead
from bert_jax.models.module import Module
from bert_jax.models.partitioning import param
from bert_jax.models.rows import Rows, gather_positions
from bert_jax.objectives.corruption import Corruption
from bert_jax.objectives.masking import Masked, mask_batch
from bert_jax.types import Batch, Key

_SAMPLES = 1  # folded into an example's key for the seed of its samples
_DROPOUT = 2**31 - 1  # dropout site of the generator


class Sharing(NamedTuple):
    """How generator and discriminator share embeddings.

    Attributes:
        shared: Parts of the embeddings that the generator takes from the discriminator.
        separated: Parts of `shared` that only the generator's loss trains. The discriminator reads
            stop_gradient(E) + Δ, where Δ starts at 0.
    """

    shared: tuple[str, ...]
    separated: tuple[str, ...]


_ALL = ('token', 'position', 'type', 'norm')
SHARING = {
    'tied': Sharing(_ALL, ()),
    'disentangled': Sharing(_ALL, ('token',)),
    'gdes': Sharing(('token', 'position'), ('token', 'position')),
}
DELTAS = {'token': 'delta', 'position': 'position_delta'}  # part → the generator's parameter Δ


class Drafted(NamedTuple):
    """A masked batch before the generator has filled it in.

    Attributes:
        masked: The masked batch.
        seeds: uint32 [B], seeds of the generator's samples.
    """

    masked: Masked
    seeds: jax.Array

    def seen_rows(self, rows: Rows) -> Rows:
        """Return the masked text, which the generator reads."""
        return self.masked.seen_rows(rows)

    def describe_row(self, row: int, vocab: Sequence[str]) -> dict[str, list]:
        """Return the generator's prediction targets."""
        return self.masked.describe_row(row, vocab)


class Replaced(NamedTuple):
    """A batch with the generator's samples in place of the masked tokens.

    Attributes:
        input_ids: int32 [B, T].
        is_replaced: bool [B, T], where `input_ids` differs from the original text.
        masked: The batch that the generator read.
        generator_logits: float32 [B, P, V], the generator's predictions of the masked tokens.
    """

    input_ids: jax.Array
    is_replaced: jax.Array
    masked: Masked
    generator_logits: jax.Array

    def seen_rows(self, rows: Rows) -> Rows:
        """Return the rows with the sampled ids."""
        return rows.replace(input_ids_BT=self.input_ids)


class ReplacedText(Corruption):
    """The text with some tokens replaced by a generator.

    The corruption only masks tokens and draws seeds: the generator has parameters, so it runs as
    part of the model (objectives/model.py).
    """

    label = 'replaced'
    config_keys = 'masking.*'

    def __call__(self, keys_B: Key, batch: Batch) -> Drafted:
        """Mask a batch and draw the seeds of the samples."""
        masked = mask_batch(self.masking, keys_B, batch, self.num_predictions)
        sample_keys_B = jax.vmap(jax.random.fold_in, (0, None))(keys_B, _SAMPLES)
        return Drafted(masked, jax.vmap(jax.random.bits)(sample_keys_B))


@dataclasses.dataclass(frozen=True)
class GeneratorOptions:
    """Size of the generator and what it shares with the discriminator; `config.rtd`.

    Attributes:
        generator_width: Factor on the encoder's hidden size, heads and intermediate size.
        generator_depth: Factor on the encoder's number of layers.
        sharing: 'tied': both losses train the embeddings (ELECTRA). 'gdes': gradient-disentangled
            embedding sharing of tokens and positions; each model has its own norm and types
            (DeBERTaV3, He et al. 2021, arXiv 2111.09543, section 3.2; microsoft/DeBERTa,
            rtd_task.py). 'disentangled': disentangled for tokens only; both losses train the rest.
        temperature: Sampling temperature; 0 takes the most likely token.
    """

    generator_width: float
    generator_depth: float
    sharing: str
    temperature: float

    def __post_init__(self) -> None:
        if self.sharing not in SHARING:
            raise unknown('rtd.sharing', self.sharing, SHARING)


def generator_architecture(architecture: Architecture, options: GeneratorOptions) -> Architecture:
    """Return a smaller architecture of the same kind, with embeddings of the same width.

    Raises:
        UserError: If a mask decoder would add positions that are wider than the hidden states.
    """
    width, depth = options.generator_width, options.generator_depth
    heads = max(1, round(architecture.num_heads * width))
    size = heads * max(2, 2 * round(architecture.hidden_size * width / heads / 2))
    layers = max(1, round(architecture.num_layers * depth))
    embedding_width = architecture.embedding_width
    if architecture.positions.kind == 'mask_decoder' and size != embedding_width:
        raise UserError(
            f'rtd.generator_width is {width}, which makes the generator {size} wide, but with '
            f'model.positions=mask_decoder it must be as wide as its embeddings ({embedding_width})'
        )
    return dataclasses.replace(
        architecture,
        hidden_size=size,
        num_layers=layers,
        num_heads=heads,
        intermediate_size=max(1, round(architecture.intermediate_size * width)),
        embedding_size=None if embedding_width == size else embedding_width,
        pooler=False,
    )


class Generator(Module):
    """A small masked language model that shares the discriminator's embeddings.

    Parameters: `encoder` (without the shared embeddings), `head` and, for separated embeddings,
    `delta` [padded_vocab_size, E] and `position_delta` [max_position_embeddings, E], initially 0.

    Attributes:
        architecture: The discriminator's architecture.
        compute: Precision and kernels.
        options: Size and sharing.
        trained_by: Objectives that train the generator.
    """

    options: GeneratorOptions

    trained_by: ClassVar[tuple[str, ...]] = ('mlm',)

    def setup(self) -> None:
        self.smaller = generator_architecture(self.architecture, self.options)
        self.encoder = self.param('encoder', self._init_encoder)
        self.head = MaskedLanguageModelHead(self.smaller, self.compute)
        architecture, zeros = self.architecture, nn.initializers.zeros
        width = architecture.embedding_width
        rows = {'token': ('vocab', architecture.padded_vocab_size)}
        if architecture.positions.kind != 'none':
            rows['position'] = ('positions', architecture.max_position_embeddings)
        self.deltas = {
            part: param(self, DELTAS[part], zeros, (num_rows, width), (axis, 'embed'))
            for part, (axis, num_rows) in rows.items()
            if part in self.sharing.separated
        }

    @property
    def sharing(self) -> Sharing:
        return SHARING[self.options.sharing]

    def __call__(
        self,
        batch: Batch,
        drafted: Drafted,
        embeddings: dict[str, Any],
        dropout_seeds_B: jax.Array | None,
    ) -> tuple[Replaced, dict[str, Any]]:
        """Fill in a masked batch.

        Args:
            batch: The clean batch.
            drafted: The masked batch with the seeds of the samples.
            embeddings: The discriminator's embedding parameters.
            dropout_seeds_B: uint32, one per example; None for evaluation.

        Returns:
            The filled-in batch, and the embeddings with which the discriminator reads it.
        """
        logits_BPV = self._logits(batch, drafted.masked, embeddings, dropout_seeds_B)
        fixed_BPV = jax.lax.stop_gradient(logits_BPV)
        samples_BP = gumbel_samples(fixed_BPV, self.options.temperature, drafted.seeds)
        replaced = put_samples(drafted.masked, samples_BP, batch['input_ids'])
        for part, delta in self.deltas.items():
            embeddings = embeddings | {part: jax.lax.stop_gradient(embeddings[part]) + delta}
        return Replaced(*replaced, drafted.masked, logits_BPV), embeddings

    def _unbound_encoder(self) -> Encoder:
        """Build an encoder without a parent, because some parameters are the discriminator's."""
        return build_encoder(self.smaller, self.compute, parent=None)

    def _init_encoder(self, key: Key) -> dict[str, Any]:
        ids = jnp.zeros((1, 1), jnp.int32)
        params = self._unbound_encoder().init(key, Rows(ids, ids + 1))['params']
        shared = self.sharing.shared
        unshared = {name: p for name, p in params['embeddings'].items() if name not in shared}
        return params | {'embeddings': unshared}

    def _logits(
        self,
        batch: Batch,
        masked: Masked,
        embeddings: dict[str, Any],
        dropout_seeds_B: jax.Array | None,
    ) -> jax.Array:
        """Return the logits at the masked positions, float32 [B, P, V]."""
        shared = {name: p for name, p in embeddings.items() if name in self.sharing.shared}
        params = unfreeze(self.encoder)
        params = params | {'embeddings': params['embeddings'] | shared}
        rows, seeds_B = masked.seen_rows(Rows.of(batch)), fold_in(dropout_seeds_B, _DROPOUT)
        output: Any = self._unbound_encoder().apply({'params': params}, rows, seeds_B)
        decoded_BPD = gather_positions(output.decoded_BTD, masked.positions)
        return self.head.predict(decoded_BPD, embeddings['token'])


def gumbel_samples(logits_BPV: jax.Array, temperature: float, seeds_B: jax.Array) -> jax.Array:
    """Draw tokens from softmax(logits / temperature), int32 [B, P].

    Takes argmax(logits + temperature · G) with standard Gumbel draws G that depend on the example's
    seed, the slot and the token alone. Finds the maximum by comparison, because XLA's argmax is
    several times slower on CPU.
    """
    bits_BPV = random_bits(logits_BPV.shape, seeds_B)
    uniform_BPV = ((bits_BPV >> 9).astype(jnp.float32) + 0.5) * 2.0**-23  # 0 < u < 1, exact
    scores_BPV = logits_BPV - temperature * jnp.log(-jnp.log(uniform_BPV))
    is_best_BPV = scores_BPV >= scores_BPV.max(axis=-1, keepdims=True)
    ids_BPV = jax.lax.broadcasted_iota(jnp.int32, scores_BPV.shape, 2)
    return jnp.max(jnp.where(is_best_BPV, ids_BPV, 0), axis=-1)


def put_samples(
    masked: Masked, samples_BP: jax.Array, original_ids_BT: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Put the samples in place of the predicted tokens.

    Tokens that the masking chose but kept are replaced as well, as in google-research/electra
    run_pretraining.py, get_fake_data.

    Returns:
        The ids, int32 [B, T], and where they differ from the original, bool [B, T]: a sample equal
        to the original token counts as original.
    """
    new_BP = jnp.where(masked.weights > 0, samples_BP, masked.labels)
    put = jax.vmap(lambda ids_T, positions_P, new_P: ids_T.at[positions_P].set(new_P))
    ids_BT = put(original_ids_BT, masked.positions, new_BP)
    return ids_BT, ids_BT != original_ids_BT
