"""TSDAE: texts are written again from the vectors of the same texts without most of their words.

Wang et al. 2021, arXiv 2104.06979; DenoisingAutoEncoderLoss and DenoisingAutoEncoderDataset in
sentence-transformers. The decoder serves training alone (models/heads/reconstruction.py).
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.averages import Terms, weighted_sum
from bert_jax.errors import UserError
from bert_jax.labels.examples import TextGroup
from bert_jax.models.model import HeadOptions
from bert_jax.models.rows import Rows, Targets
from bert_jax.objectives.masking_schemes import TokenRow, find_words
from bert_jax.objectives.mlm import cross_entropy, is_best
from bert_jax.problems import base
from bert_jax.problems.embedding.base import LossOptions
from bert_jax.problems.embedding.problem import EmbeddingTraining
from bert_jax.tokenizers import Tokenizer, word_starts
from bert_jax.types import Array, Batch, Key, Tree

_NOISE_KEY = 6037  # separates noise from dropout, which uses the same seeds
_FIELDS = ('label', 'scores', 'vectors')  # of `TextGroup`, which have no use here


@dataclasses.dataclass(frozen=True)
class DenoisingLoss(LossOptions):
    """The mean cross-entropy of all tokens of the texts of a batch.

    Attributes:
        deletion: probability of each word to be deleted; one word of each text always stays.
    """

    deletion: float = 0.6

    training = 'bert_jax.problems.embedding.denoising:DenoisingTraining'
    min_texts = 1
    max_texts = 1

    def why_unusable(self, example: TextGroup) -> str:
        for field in _FIELDS:
            if getattr(example, field):
                return f'{field} given, but the loss reads texts alone; unset data.columns.{field}'
        return ''

    def why_refused(self, examples: Sequence[TextGroup], tokenizer: Tokenizer) -> str:
        texts = [text for example in examples for text in example.texts]
        ids_N, length_E = tokenizer.encode_ids(texts, special=True)
        starts_N, first_E = find_starts(tokenizer)[ids_N], np.cumsum(length_E) - length_E
        starts_N[first_E[length_E > 0]] = True
        words_N = np.concatenate([[0], np.cumsum(starts_N)])
        number_E = words_N[first_E + length_E] - words_N[first_E]
        for example, number in zip(examples, number_E, strict=True):
            if number < 2:
                return (
                    f'example {example.id}: the text {example.texts[0]!r:.40} has less than two '
                    'words, so problem.loss=tsdae cannot delete any; remove the example'
                )
        return ''


class DenoisingTraining(EmbeddingTraining):
    """Deletes words, encodes what is left, and writes the text from its vector.

    Evaluation has no noise, and no loss.
    """

    reads_whole_batch = False
    starts_from = {'mlm/head': 'reconstruction/head/prediction'}

    def __post_init__(self) -> None:
        """Raise UserError for Matryoshka sizes."""
        super().__post_init__()
        if self.settings.dimensions:
            raise UserError(
                f'problem.dimensions is {self.settings.dimensions}, but problem.loss=tsdae trains '
                'vectors of the full size only; leave it out'
            )

    def heads(self) -> Mapping[str, HeadOptions]:
        """Return the heads; the decoder is only part of a model that is trained."""
        (vector,) = super().heads().values()
        decoder = {'reconstruction': vector} if self.setup.batch_size else {}
        return {'embedding': vector, **decoder}

    @functools.cached_property
    def _starts_V(self) -> np.ndarray:
        return find_starts(self.encoding.tokenizer)

    @functools.cached_property
    def _special_ids(self) -> list[int]:
        """Tokens that are not deleted; an unknown word is deleted as any other."""
        tokenizer = self.encoding.tokenizer
        return sorted({*tokenizer.special_ids} - {tokenizer.role_ids.get('unk')})

    @functools.cached_property
    def _num_fixed(self) -> int:
        """Number of tokens before each text, with its prompt, that are not deleted."""
        prompt = self.settings.document_prompt.rstrip()
        (ids,) = self.encoding.tokenizer.encode_batch([prompt], special=True).ids
        (start,) = self.encoding.layout.lay_out(ids).starts
        return start + len(ids)

    def corrupt(self, rows: Rows, dropout_seeds_R: base.Seeds) -> Rows:
        """Delete words of packed rows; their target is the rows as they were."""
        if dropout_seeds_R is None:
            return rows
        keys_R = jax.vmap(jax.random.fold_in, (None, 0))(
            jax.random.key(_NOISE_KEY), dropout_seeds_R
        )
        tokenizer, ids_RT = self.encoding.tokenizer, jnp.asarray(rows.input_ids_BT)
        can_delete_RT = rows.is_token_BT & ~jnp.isin(ids_RT, jnp.array(self._special_ids))
        positions_RT = rows.positions()
        assert positions_RT is not None
        can_delete_RT &= positions_RT >= self._num_fixed
        starts_RT = jnp.asarray(self._starts_V)[ids_RT]
        noised = delete_words(
            keys_R, rows, starts_RT, can_delete_RT, self.settings.deletion, tokenizer.pad_id
        )
        return noised.replace(target=next_tokens(rows))

    def outputs(self, heads: Mapping[str, Tree], rows: Rows) -> base.Outputs:
        """Return 'vectors'; with a target also its 'logits', 'ids' and 'weights'."""
        outputs = super().outputs(heads, rows)
        if rows.target is None:
            return outputs
        targets = rows.target.chosen
        of_target = {'ids': targets.ids_BP, 'weights': targets.weights_BP}
        return {**outputs, 'logits': heads['reconstruction'], **of_target}

    def terms(self, outputs: base.Outputs, batch: Batch) -> Terms:
        """Return 'embedding', the cross-entropy of tokens, and 'token_accuracy'."""
        if 'logits' not in outputs:
            return {}
        logits_RPV = outputs['logits'][..., : self.encoding.tokenizer.vocab_size]
        ids_RP, weights_RP = outputs['ids'], outputs['weights']
        return {
            'embedding': weighted_sum(cross_entropy(logits_RPV, ids_RP), weights_RP),
            'token_accuracy': weighted_sum(is_best(logits_RPV, ids_RP), weights_RP),
        }

    def held_out_terms(self, examples: Sequence[TextGroup], predictions: Sequence[Array]) -> Terms:
        return {}


def find_starts(tokenizer: Tokenizer) -> np.ndarray:
    """Return which tokens start a word, bool [V]: all, if the vocabulary does not mark words.

    A punctuation mark is a word, and so is a character of a script without spaces.
    """
    starts_V = word_starts.find(tokenizer, 'punctuation', 'characters')
    return np.ones(tokenizer.vocab_size, bool) if starts_V is None else starts_V


def delete_words(
    keys_R: Key,
    rows: Rows,
    starts_RT: jax.Array,
    can_delete_RT: jax.Array,
    deletion: float,
    pad_id: int,
) -> Rows:
    """Delete words of packed rows and close the gaps; sequences keep their segment ids.

    Args:
        keys_R: a key for each row.
        rows: packed rows.
        starts_RT: bool, whether a token starts a word.
        can_delete_RT: bool; at least one word of these tokens stays in each sequence.
        deletion: probability that a word is deleted.
        pad_id: id of padding.
    """

    def noise(key: Key, arrays: dict[str, jax.Array], first_S: jax.Array) -> Tree:
        is_token_T, can_T = arrays['mask'] > 0, arrays['can']
        row = TokenRow(arrays['ids'], is_token_T, can_T, None, arrays['starts'])
        draw_T = jax.random.uniform(key, can_T.shape)[find_words(row).index_T]
        draw_T = jnp.where(can_T, draw_T, -1)
        largest_T = jax.ops.segment_max(draw_T, arrays['segments'], len(can_T) + 1)
        stays_T = (draw_T >= deletion) | (draw_T == largest_T[arrays['segments']])
        keep_T = is_token_T & (stays_T | ~can_T)
        order_T = jnp.argsort(~keep_T, stable=True)
        is_token_T = jnp.arange(len(keep_T)) < keep_T.sum()
        taken = {name: jnp.where(is_token_T, x_T[order_T], 0) for name, x_T in arrays.items()}
        taken['ids'] = jnp.where(is_token_T, taken['ids'], pad_id)
        place_T = jnp.cumsum(keep_T) - keep_T
        return taken, jnp.where(first_S >= 0, place_T[jnp.maximum(first_S, 0)], -1)

    fields = {
        'ids': rows.input_ids_BT,
        'mask': rows.attention_mask_BT,
        'types': rows.token_type_ids_BT,
        'segments': rows.segment_ids_BT,
        'starts': starts_RT,
        'can': can_delete_RT,
    }
    arrays = {name: jnp.asarray(array) for name, array in fields.items() if array is not None}
    taken, first_RS = jax.vmap(noise)(keys_R, arrays, jnp.asarray(rows.first_positions_BS))
    return rows.replace(
        input_ids_BT=taken['ids'],
        attention_mask_BT=taken['mask'],
        token_type_ids_BT=taken.get('types'),
        segment_ids_BT=taken['segments'],
        first_positions_BS=first_RS,
    )


def next_tokens(rows: Rows) -> Rows:
    """Return packed rows whose targets are the tokens of each sequence after its first."""
    ids_RT, segment_RT = jnp.asarray(rows.input_ids_BT), jnp.asarray(rows.segment_ids_BT)
    before_RT = jnp.pad(segment_RT[:, :-1], [(0, 0), (1, 0)], constant_values=-1)
    follows_RT = rows.is_token_BT & (segment_RT == before_RT)
    targets = Targets.of_next(ids_RT, follows_RT)
    return Rows(ids_RT, rows.attention_mask_BT, segment_ids_BT=segment_RT, targets=targets)
