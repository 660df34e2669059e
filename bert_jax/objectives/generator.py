"""Tokens replaced by what a small masked language model finds plausible (ELECTRA, Clark et al.
2020, arXiv 2003.10555, section 2)."""

import dataclasses
from dataclasses import dataclass
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.core import unfreeze

from bert_jax.averages import Terms
from bert_jax.errors import UserError, unknown
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.dropout import fold, random_bits
from bert_jax.models.encoder import Encoder
from bert_jax.models.heads import MaskedLanguageModelHead
from bert_jax.models.packed_rows import gather_positions
from bert_jax.objectives.masking import Masked
from bert_jax.objectives.packed import encoder_arguments

SHARING = ('tied', 'disentangled')
SHARED = ('token', 'position', 'type', 'norm')  # parts of Embeddings
_DROPOUT = 2**31 - 1  # the generator's place among the uses of the seeds


class Drafted(NamedTuple):
    """A masked batch whose masks a generator is to fill."""

    masked: Masked
    seeds: jax.Array  # uint32 [B] of the samples


class Replaced(NamedTuple):
    """A batch with the generator's samples in place of the masks."""

    input_ids: jax.Array  # int32 [B, T]
    is_replaced: jax.Array  # bool [B, T] where it differs from the original
    terms: Terms  # of the generator's own training


@dataclass(frozen=True)
class Generation:
    """How tokens are replaced.

    generator_width: of the encoder's features, heads and intermediate size; generator_depth: of its
    layers.
    sharing: 'tied': the embeddings are trained by both losses (ELECTRA). 'disentangled': by the
    generator's alone, and the discriminator's tokens are stop_gradient(E) + delta (DeBERTaV3, He et
    al. 2021, arXiv 2111.09543, section 3.2); other embeddings are trained by both.
    temperature: of sampling; 0 takes the likeliest token.
    """

    generator_width: float
    generator_depth: float
    sharing: str
    temperature: float

    def __post_init__(self):
        for name in ('generator_width', 'generator_depth'):
            share = getattr(self, name)
            if not 0 < share <= 1:
                raise UserError(f'rtd.{name} is {share}; it must be above 0 and at most 1')
        if self.sharing not in SHARING:
            raise unknown('rtd.sharing', self.sharing, SHARING)
        if self.temperature < 0:
            raise UserError(f'rtd.temperature is {self.temperature}; it must be at least 0')


def generator_architecture(architecture: Architecture, generation: Generation) -> Architecture:
    """A smaller encoder of the same kind, its embeddings as wide as the discriminator's. Raises
    UserError for a mask decoder that would have to add wider positions to its states."""
    width, depth = generation.generator_width, generation.generator_depth
    heads = max(1, round(architecture.num_heads * width))
    size = heads * max(2, 2 * round(architecture.hidden_size * width / heads / 2))
    layers = max(1, round(architecture.num_layers * depth))
    per_layer = {
        name: getattr(architecture, name) and getattr(architecture, name)[:layers]
        for name in ('attention_windows', 'rope_thetas')
    }
    embedding_width = architecture.embedding_width
    if architecture.mask_decoder and size != embedding_width:
        raise UserError(
            f'rtd.generator_width {width}: with mask_decoder the generator must be as wide as its '
            'embeddings'
        )
    return dataclasses.replace(
        architecture,
        hidden_size=size,
        num_layers=layers,
        num_heads=heads,
        intermediate_size=max(1, round(architecture.intermediate_size * width)),
        embedding_size=None if embedding_width == size else embedding_width,
        pooler=False,
        **per_layer,
    )


class Generator(nn.Module):
    """A small masked language model that reads and writes with the discriminator's embeddings.

    Parameters: encoder (without what is shared), head and, where the embeddings are disentangled,
    delta [padded_vocab_size, embedding width], at first 0.
    """

    architecture: Architecture  # of the discriminator
    compute: Compute
    generation: Generation

    def setup(self):
        self.smaller = generator_architecture(self.architecture, self.generation)
        self.encoder = self.param('encoder', self._init_encoder)
        self.head = MaskedLanguageModelHead(self.smaller, self.compute)
        if self.generation.sharing == 'disentangled':
            self.delta = self.param(
                'delta',
                nn.with_logical_partitioning(nn.initializers.zeros, ('vocab', 'embed')),
                (self.architecture.padded_vocab_size, self.architecture.embedding_width),
            )

    def _bare_encoder(self) -> Encoder:
        """Of no parent: its parameters are given to it, some of them the discriminator's."""
        return Encoder(self.smaller, self.compute, parent=None)

    def _init_encoder(self, key):
        ids = jnp.zeros((1, 1), jnp.int32)
        params = self._bare_encoder().init(key, ids, ids + 1)['params']
        own = {name: p for name, p in params['embeddings'].items() if name not in SHARED}
        return params | {'embeddings': own}

    def logits(self, batch, masked: Masked, embeddings: dict, dropout_seeds_B) -> jax.Array:
        """float32 [B, P, V] at the masked positions. embeddings: the discriminator's parameters of
        this name."""
        shared = {name: p for name, p in embeddings.items() if name in SHARED}
        own = unfreeze(self.encoder)
        params = own | {'embeddings': own['embeddings'] | shared}
        output = self._bare_encoder().apply(
            {'params': params},
            masked.input_ids,
            batch['attention_mask'],
            batch['token_type_ids'],
            fold(dropout_seeds_B, _DROPOUT),
            **encoder_arguments(batch),
        )
        decoded_BPD = gather_positions(output.decoded_BTD, masked.positions)
        return self.head(decoded_BPD, embeddings['token'])

    def samples(self, logits_BPV, seeds_B) -> jax.Array:
        """int32 [B, P] tokens drawn from softmax(logits / temperature), without gradient."""
        logits_BPV = jax.lax.stop_gradient(logits_BPV)
        return gumbel_samples(logits_BPV, self.generation.temperature, seeds_B)

    def discriminator_embeddings(self, embeddings: dict) -> dict:
        """The embeddings' parameters that the discriminator reads with."""
        if self.generation.sharing == 'tied':
            return embeddings
        return embeddings | {'token': jax.lax.stop_gradient(embeddings['token']) + self.delta}


def gumbel_samples(logits_BPV, temperature: float, seeds_B) -> jax.Array:
    """argmax(logits + temperature · G), G standard Gumbel draws that hang on an example's seed, the
    slot and the token alone; that is a draw from softmax(logits / temperature).

    The best is found by comparison: XLA's argmax is several times slower on CPUs.
    """
    bits_BPV = random_bits(logits_BPV.shape, seeds_B)
    uniform_BPV = ((bits_BPV >> 9).astype(jnp.float32) + 0.5) * 2.0**-23  # 0 < u < 1, exact
    scores_BPV = logits_BPV - temperature * jnp.log(-jnp.log(uniform_BPV))
    is_best_BPV = scores_BPV >= scores_BPV.max(axis=-1, keepdims=True)
    ids_BPV = jax.lax.broadcasted_iota(jnp.int32, scores_BPV.shape, 2)
    return jnp.max(jnp.where(is_best_BPV, ids_BPV, 0), axis=-1)


def put_samples(masked: Masked, samples_BP, original_ids_BT) -> tuple[jax.Array, jax.Array]:
    """(ids with the samples in place of the predicted tokens, where these differ from the
    originals): a sample that is the original counts as original.

    A token chosen for prediction but left in place by the masking is replaced as well, as in
    google-research/electra run_pretraining.py, get_fake_data.
    """

    def one(ids_T, positions_P, new_P):
        return ids_T.at[positions_P].set(new_P)

    new_BP = jnp.where(masked.weights > 0, samples_BP, masked.labels)
    ids_BT = jax.vmap(one)(original_ids_BT, masked.positions, new_BP)
    return ids_BT, ids_BT != original_ids_BT
