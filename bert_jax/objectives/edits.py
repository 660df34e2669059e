"""Edits of a text that a token classifier can learn to detect.

Sentences are permuted; tokens are deleted, inserted and substituted. Each edit works on one example
and labels the positions of the edited text where the edit can be detected. Labels of earlier edits
move along with their tokens, so edits combine, in the order of EDITS.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from bert_jax.models.rows import Rows
from bert_jax.objectives.corruption import Corruption
from bert_jax.objectives.masking import is_special, random_ids
from bert_jax.types import Batch, Key

UNLABELED = -1  # label of a position without a prediction


class Edited(NamedTuple):
    """An edited batch, or one example of it.

    Attributes:
        input_ids: int32 [B, T].
        attention_mask: int32 [B, T].
        token_type_ids: int32 [B, T].
        labels: Name of the edit → int32 [B, T]: UNLABELED at padding and where nothing is
            predicted, 0 where the text is unchanged.
    """

    input_ids: jax.Array
    attention_mask: jax.Array
    token_type_ids: jax.Array
    labels: dict[str, jax.Array]

    def seen_rows(self, rows: Rows) -> Rows:
        """Return the edited rows."""
        return Rows(self.input_ids, self.attention_mask, self.token_type_ids)

    def describe_row(self, row: int, vocab: Sequence[str]) -> dict[str, list]:
        """Return the labels of each edit at the tokens that are not padding, None if unlabeled.

        The label of a deletion is the first token deleted after a token, or 0 if none was.
        """
        real_T, labels_by_edit = self.attention_mask[row] > 0, {}
        for name, labels_BT in self.labels.items():
            labels = labels_BT[row][real_T].tolist()
            if name == 'deletion':
                labels = [vocab[label - 1] if label > 0 else label for label in labels]
            labels_by_edit[name] = [None if label == UNLABELED else label for label in labels]
        return labels_by_edit


class EditedText(Corruption):
    """The text with the edits of all enabled objectives.

    `options[name]` is the rate of an edit: the share of tokens, or of examples for `permutation`.
    """

    label = 'edited'
    config_keys = 'masking.(unknown|replacement)'
    allows_packing = False  # edits would move tokens from one example of a row into another

    def __call__(self, keys_B: Key, batch: Batch) -> Edited:
        """Apply the edits.

        Reads `input_ids`, `attention_mask`, `token_type_ids` and, for the permutation of sentences,
        `sentence_start` (1 at the first token of each sentence).
        """
        return jax.vmap(self._edit_example)(keys_B, batch)

    def _edit_example(self, key: Key, example: Batch) -> Edited:
        edited = Edited(
            example['input_ids'], example['attention_mask'], example['token_type_ids'], labels={}
        )
        for number, (name, edit) in enumerate(EDITS.items()):
            if rate := self.options.get(name):
                edited = edit(jax.random.fold_in(key, number), edited, rate, self, example)
        return edited


def permute(key: Key, edited: Edited, rate: float, settings: EditedText, example: Batch) -> Edited:
    """Put the sentences of each segment into random order, with probability `rate`.

    Labels the first token of each sentence: 0 if the sentence before it precedes it in the original
    text as well, else 1. For the first sentence of a segment: 0 if it is the first sentence in the
    original text, else 1.
    """
    whether_key, order_key = jax.random.split(key)
    special_T = is_special(edited.input_ids, settings.masking) | (edited.attention_mask == 0)
    after_special_T = jnp.pad(special_T[:-1], (1, 0), constant_values=True)
    starts_T = ~special_T & ((example['sentence_start'] > 0) | after_special_T)
    sentence_T = jnp.cumsum(starts_T)
    segment_T = 2 * jnp.cumsum(special_T) - special_T  # every special token is a segment
    priority_T = jax.random.uniform(order_key, special_T.shape)[sentence_T]
    priority_T = jnp.where(jax.random.bernoulli(whether_key, rate), priority_T, sentence_T)
    source_T = jnp.lexsort((jnp.arange(len(special_T)), priority_T, segment_T))
    moved_T = sentence_T[source_T]
    first_T = jax.ops.segment_min(sentence_T + special_T, segment_T, 2 * len(special_T))
    previous_T = jnp.pad(moved_T[:-1], (1, 0))
    expected_T = jnp.where(after_special_T, first_T[segment_T], previous_T + 1)
    labels_T = jnp.where(starts_T[source_T], moved_T != expected_T, UNLABELED)
    return _with_labels(_take(edited, source_T), 'permutation', labels_T)


def delete(key: Key, edited: Edited, rate: float, settings: EditedText, example: Batch) -> Edited:
    """Delete a share `rate` of the tokens that are not special and close the gaps.

    Labels every remaining token: 1 + the id of the first token deleted after it, or 0 if none was.
    """
    ids_T = edited.input_ids
    real_T = edited.attention_mask > 0
    is_deleted_T = _choose(key, rate, real_T & ~is_special(ids_T, settings.masking))
    deleted_T = jnp.where(is_deleted_T, 1 + ids_T, 0)
    labels_T = jnp.where(real_T, jnp.pad(deleted_T[1:], (0, 1)), UNLABELED)
    edited = _with_labels(edited, 'deletion', labels_T)
    source_T = jnp.argsort(is_deleted_T | ~real_T, stable=True)
    is_real_T = jnp.arange(len(ids_T)) < jnp.sum(real_T & ~is_deleted_T)
    return _pad(_take(edited, source_T), is_real_T, settings.pad_id)


def insert(key: Key, edited: Edited, rate: float, settings: EditedText, example: Batch) -> Edited:
    """Insert random tokens after a share `rate` of the tokens, never after the last token.

    If the row overflows, its last token (usually [SEP]) is kept and tokens before it are cut off.
    Labels every token: 1 if it was inserted, else 0. Earlier edits have no label at inserted
    tokens.
    """
    where_key, id_key = jax.random.split(key)
    length = len(edited.input_ids)
    t_T = jnp.arange(length)
    num_real = jnp.sum(edited.attention_mask)
    inserts_T = _choose(where_key, rate, t_T + 1 < num_real)  # a token is inserted after this one
    place_T = t_T + jnp.cumsum(inserts_T) - inserts_T
    source_T = jnp.zeros(length, jnp.int32).at[place_T].set(t_T, mode='drop')
    is_new_T = jnp.zeros(length, bool).at[place_T + 1].max(inserts_T, mode='drop')
    is_cut = num_real + jnp.sum(inserts_T) > length
    source_T = source_T.at[-1].set(jnp.where(is_cut, num_real - 1, source_T[-1]))
    is_new_T = is_new_T.at[-1].set(is_new_T[-1] & ~is_cut)
    # An inserted token gets the type of the token before it.
    source_T = jnp.where(is_new_T, jnp.roll(source_T, 1), source_T)
    edited = _take(edited, source_T)
    is_real_T = t_T < num_real + jnp.sum(inserts_T)
    edited = _pad(edited, is_real_T, settings.pad_id)
    random_T = random_ids(id_key, (length,), settings.masking)
    labels = {
        name: jnp.where(is_new_T, UNLABELED, labels_T) for name, labels_T in edited.labels.items()
    }
    edited = edited._replace(
        input_ids=jnp.where(is_new_T, random_T, edited.input_ids),
        attention_mask=is_real_T.astype(jnp.int32),
        labels=labels,
    )
    return _with_labels(edited, 'insertion', jnp.where(is_real_T, is_new_T, UNLABELED))


def substitute(
    key: Key, edited: Edited, rate: float, settings: EditedText, example: Batch
) -> Edited:
    """Replace a share `rate` of the tokens that are not special with random tokens.

    Labels every token: 1 if it differs from the original, else 0. Inserted tokens are kept.
    """
    where_key, id_key = jax.random.split(key)
    ids_T, real_T = edited.input_ids, edited.attention_mask > 0
    can_choose_T = real_T & ~is_special(ids_T, settings.masking)
    if 'insertion' in edited.labels:
        can_choose_T &= edited.labels['insertion'] == 0
    new_T = random_ids(id_key, ids_T.shape, settings.masking)
    new_T = jnp.where(_choose(where_key, rate, can_choose_T), new_T, ids_T)
    labels_T = jnp.where(real_T, new_T != ids_T, UNLABELED)
    return _with_labels(edited._replace(input_ids=new_T), 'substitution', labels_T)


Edit: TypeAlias = Callable[[Key, Edited, float, EditedText, Batch], Edited]

EDITS: dict[str, Edit] = {  # An edit's index is folded into its key: append new edits.
    'permutation': permute,
    'deletion': delete,
    'insertion': insert,
    'substitution': substitute,
}


def _choose(key: Key, rate: float, candidates_T: jax.Array) -> jax.Array:
    """Choose each candidate with probability `rate`."""
    return candidates_T & jax.random.bernoulli(key, rate, candidates_T.shape)


def _with_labels(edited: Edited, name: str, labels_T: jax.Array) -> Edited:
    return edited._replace(labels=edited.labels | {name: labels_T.astype(jnp.int32)})


def _take(edited: Edited, source_T: jax.Array) -> Edited:
    """Gather every array at the positions `source_T`."""
    return jax.tree.map(lambda leaf_T: leaf_T[source_T], edited)


def _pad(edited: Edited, is_real_T: jax.Array, pad_id: int) -> Edited:
    """Turn the positions behind the real tokens into padding."""
    return Edited(
        jnp.where(is_real_T, edited.input_ids, pad_id),
        jnp.where(is_real_T, edited.attention_mask, 0),
        jnp.where(is_real_T, edited.token_type_ids, 0),
        {
            name: jnp.where(is_real_T, labels_T, UNLABELED)
            for name, labels_T in edited.labels.items()
        },
    )
