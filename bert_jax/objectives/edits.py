"""Edits of a text that an encoder with one output a position can learn to find: sentences out of
order, deleted, inserted and substituted tokens.

Every edit sees one example, marks what it did where it can be seen afterwards, and carries the
marks of the edits before it along; so they combine, in the order of EDITS. The original text cannot
be written out by such an encoder, which answers for the tokens it is given: it says whether each is
in its place, and what was deleted after it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from bert_jax.errors import UserError
from bert_jax.objectives.masking import Masking, is_special, random_ids

NOT_ASKED = -1  # mark of a position that is not asked about


class Edited(NamedTuple):
    """An edited batch, or one example of it. The marks of each edit are NOT_ASKED at padding and 0
    where nothing was done."""

    input_ids: jax.Array  # int32 [B, T]
    attention_mask: jax.Array  # int32 [B, T]
    token_type_ids: jax.Array  # int32 [B, T]
    marks: dict[str, jax.Array]  # int32 [B, T] by the name of the edit


@dataclass(frozen=True, eq=False)
class Editing:
    """Which edits, and how much: shares of the tokens, of permutation the share of the examples.

    masking tells which tokens are special and how random tokens are drawn.
    """

    rates: dict[str, float]  # by name of EDITS, of those in use
    masking: Masking
    pad_id: int

    def __post_init__(self):
        for name, rate in self.rates.items():
            if not 0 < rate < 1:
                raise UserError(f'editing.{name} is {rate}; it must lie between 0 and 1')

    def __call__(self, keys_B, batch) -> Edited:
        """The batch with all edits in use made to it; input_ids, attention_mask, token_type_ids
        and, for permutation, sentence_start of the batch are read."""
        return jax.vmap(self._one)(keys_B, batch)

    def _one(self, key, row) -> Edited:
        edited = Edited(row['input_ids'], row['attention_mask'], row['token_type_ids'], {})
        for number, (name, edit) in enumerate(EDITS.items()):
            if name in self.rates:
                edit_key = jax.random.fold_in(key, number)
                edited = edit(edit_key, edited, self.rates[name], self, row)
        return edited


def permute(key, edited: Edited, rate: float, settings: Editing, row) -> Edited:
    """With probability `rate` puts the sentences of each segment into random order.

    Marked is the first token of each sentence: 1 if it does not follow the sentence it follows in
    the text, 0 if it does; of the first of a segment, if it is not the first in the text.
    """
    whether_key, order_key = jax.random.split(key)
    special_T = is_special(edited.input_ids, settings.masking) | (edited.attention_mask == 0)
    after_special_T = jnp.pad(special_T[:-1], (1, 0), constant_values=True)
    starts_T = ~special_T & ((row['sentence_start'] > 0) | after_special_T)
    sentence_T = jnp.cumsum(starts_T)
    segment_T = 2 * jnp.cumsum(special_T) - special_T  # special tokens are segments of their own
    priority_T = jax.random.uniform(order_key, special_T.shape)[sentence_T]
    priority_T = jnp.where(jax.random.bernoulli(whether_key, rate), priority_T, sentence_T)
    source_T = jnp.lexsort((jnp.arange(len(special_T)), priority_T, segment_T))
    moved_T = sentence_T[source_T]
    first_T = jax.ops.segment_min(sentence_T + special_T, segment_T, 2 * len(special_T))
    before_T = jnp.pad(moved_T[:-1], (1, 0))
    expected_T = jnp.where(after_special_T, first_T[segment_T], before_T + 1)
    marks_T = jnp.where(starts_T[source_T], moved_T != expected_T, NOT_ASKED)
    return _take(edited, source_T)._replace(marks={'permutation': marks_T.astype(jnp.int32)})


def delete(key, edited: Edited, rate: float, settings: Editing, row) -> Edited:
    """Deletes a share `rate` of the tokens that are not special and closes the gaps.

    Marked is every token that is left: 1 + the id of the first deleted after it, 0 if none was.
    """
    ids_T = edited.input_ids
    real_T = edited.attention_mask > 0
    goes_T = _some(key, rate, real_T & ~is_special(ids_T, settings.masking))
    next_T = jnp.where(goes_T, 1 + ids_T, 0)
    marks_T = jnp.where(real_T, jnp.pad(next_T[1:], (0, 1)), NOT_ASKED)
    edited = _mark(edited, 'deletion', marks_T)
    source_T = jnp.argsort(goes_T | ~real_T, stable=True)
    is_left_T = jnp.arange(len(ids_T)) < jnp.sum(real_T & ~goes_T)
    return _blank(_take(edited, source_T), is_left_T, settings.pad_id)


def insert(key, edited: Edited, rate: float, settings: Editing, row) -> Edited:
    """Puts random tokens after a share `rate` of the tokens, but not after the last. What does not
    fit into the row any more is cut from its end, in front of the last token.

    Marked is every token: 1 if it was inserted. Earlier edits do not ask about such tokens.
    """
    where_key, id_key = jax.random.split(key)
    length = len(edited.input_ids)
    t_T = jnp.arange(length)
    num_real = jnp.sum(edited.attention_mask)
    before_T = _some(where_key, rate, t_T + 1 < num_real)
    place_T = t_T + jnp.cumsum(before_T) - before_T
    source_T = jnp.zeros(length, jnp.int32).at[place_T].set(t_T, mode='drop')
    is_new_T = jnp.zeros(length, bool).at[place_T + 1].max(before_T, mode='drop')
    is_cut = num_real + jnp.sum(before_T) > length
    source_T = source_T.at[-1].set(jnp.where(is_cut, num_real - 1, source_T[-1]))
    is_new_T = is_new_T.at[-1].set(is_new_T[-1] & ~is_cut)
    # An inserted token has the type of the one before it.
    source_T = jnp.where(is_new_T, jnp.roll(source_T, 1), source_T)
    edited = _take(edited, source_T)
    is_real_T = t_T < num_real + jnp.sum(before_T)
    edited = _blank(edited, is_real_T, settings.pad_id)
    ids_T = random_ids(id_key, (length,), settings.masking)
    marks = {
        name: jnp.where(is_new_T, NOT_ASKED, marks_T) for name, marks_T in edited.marks.items()
    }
    edited = edited._replace(
        input_ids=jnp.where(is_new_T, ids_T, edited.input_ids),
        attention_mask=is_real_T.astype(jnp.int32),
        marks=marks,
    )
    return _mark(edited, 'insertion', jnp.where(is_real_T, is_new_T, NOT_ASKED))


def substitute(key, edited: Edited, rate: float, settings: Editing, row) -> Edited:
    """Replaces a share `rate` of the tokens that are not special by random ones.

    Marked is every token: 1 if it is another one now. Inserted tokens stay.
    """
    where_key, id_key = jax.random.split(key)
    ids_T, real_T = edited.input_ids, edited.attention_mask > 0
    can_choose_T = real_T & ~is_special(ids_T, settings.masking)
    if 'insertion' in edited.marks:
        can_choose_T &= edited.marks['insertion'] == 0
    new_T = random_ids(id_key, ids_T.shape, settings.masking)
    new_T = jnp.where(_some(where_key, rate, can_choose_T), new_T, ids_T)
    marks_T = jnp.where(real_T, new_T != ids_T, NOT_ASKED)
    return _mark(edited._replace(input_ids=new_T), 'substitution', marks_T)


EDITS = {
    'permutation': permute,
    'deletion': delete,
    'insertion': insert,
    'substitution': substitute,
}


def _some(key, rate: float, among_T):
    return among_T & jax.random.bernoulli(key, rate, among_T.shape)


def _mark(edited: Edited, name: str, marks_T) -> Edited:
    return edited._replace(marks=edited.marks | {name: marks_T.astype(jnp.int32)})


def _take(edited: Edited, source_T) -> Edited:
    """Every array with its entries taken from these positions."""
    return jax.tree.map(lambda leaf_T: leaf_T[source_T], edited)


def _blank(edited: Edited, is_real_T, pad_id: int) -> Edited:
    """Everything behind the real tokens as padding is."""
    return Edited(
        jnp.where(is_real_T, edited.input_ids, pad_id),
        jnp.where(is_real_T, edited.attention_mask, 0),
        jnp.where(is_real_T, edited.token_type_ids, 0),
        {name: jnp.where(is_real_T, m_T, NOT_ASKED) for name, m_T in edited.marks.items()},
    )
