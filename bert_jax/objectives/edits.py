"""Edits of a text that a token classifier can learn to detect.

Sentences are permuted; tokens are deleted, inserted and substituted. Each edit works on one example
and labels the positions of the edited text where the edit can be detected. Labels of earlier edits
move along with their tokens, so edits combine, in the order of EDITS.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from bert_jax.models.rows import Rows, Targets
from bert_jax.objectives.corruption import Corruption, Vocabulary
from bert_jax.types import Config, Key, Tree

UNLABELED = -1  # label of a position without a prediction


class Edited(NamedTuple):
    """An edited example, int32 arrays of length T; mapped over the batch.

    Attributes:
        input_ids_T, attention_mask_T, token_type_ids_T: As in `Rows`.
        sentence_start_T: 1 at the first token of each sentence of the original text; None if no
            edit needs it.
        labels: Name of the edit → UNLABELED at padding and where nothing is predicted, 0 where the
            text is unchanged.
    """

    input_ids_T: jax.Array
    attention_mask_T: jax.Array
    token_type_ids_T: jax.Array
    sentence_start_T: jax.Array | None
    labels: dict[str, jax.Array]


@dataclasses.dataclass(frozen=True, eq=False)
class EditedText(Corruption):
    """The text with the edits of all enabled objectives; each labels the rows under its name.

    Attributes:
        rates: Name of the edit → share of tokens, or of examples for `permutation`.
        replacement: Distribution of random tokens, one of REPLACEMENTS.
    """

    rates: Mapping[str, float]
    replacement: str = 'uniform'

    masking_keys = ('unknown', 'replacement')
    allows_packing = False  # edits would move tokens from one example of a row into another

    @classmethod
    def build(
        cls, config: Config, vocabulary: Vocabulary, num_predictions: Mapping[int, int]
    ) -> 'EditedText':
        rates = {name: config.editing[name] for name in EDITS if config.objectives[name]}
        return cls(vocabulary, rates, config.masking.replacement)

    def __call__(self, keys_B: Key, rows: Rows) -> Rows:
        """Apply the edits; the permutation of sentences reads the label `sentence_start`."""
        starts_BT = rows.labels.get('sentence_start')
        arrays: Tree = (
            rows.input_ids_BT,
            rows.attention_mask_BT,
            rows.token_type_ids_BT,
            starts_BT,
        )
        edited = jax.vmap(self._edit_example)(keys_B, Edited._make((*arrays, {})))
        deletions_BT = edited.labels.get('deletion')
        return rows.replace(
            targets=None if deletions_BT is None else deleted_tokens(deletions_BT),
            input_ids_BT=edited.input_ids_T,
            attention_mask_BT=edited.attention_mask_T,
            token_type_ids_BT=edited.token_type_ids_T,
            labels={**rows.labels, **edited.labels},
        )

    def _edit_example(self, key: Key, edited: Edited) -> Edited:
        for number, (name, edit) in enumerate(EDITS.items()):
            if rate := self.rates.get(name):
                edited = edit(jax.random.fold_in(key, number), edited, rate, self)
        return edited

    def describe(self, rows: Rows, row: int, vocab: Sequence[str]) -> dict[str, list[object]]:
        """Return the labels of each edit at the tokens that are not padding, None if unlabeled.

        The label of a deletion is the first token deleted after a token, or 0 if none was.
        """
        is_token_T, labels_by_edit = rows.attention_mask_BT[row] > 0, {}
        for name in self.rates:
            labels = rows.labels[name][row][is_token_T].tolist()
            if name == 'deletion':
                labels = [vocab[label - 1] if label > 0 else label for label in labels]
            labels_by_edit[name] = [None if label == UNLABELED else label for label in labels]
        return labels_by_edit


def permute(key: Key, edited: Edited, rate: float, settings: EditedText) -> Edited:
    """Put the sentences of each segment into random order, with probability `rate`.

    Labels the first token of each sentence: 0 if the sentence before it precedes it in the original
    text as well, else 1. For the first sentence of a segment: 0 if it is the first sentence in the
    original text, else 1.
    """
    whether_key, order_key = jax.random.split(key)
    assert edited.sentence_start_T is not None
    special_T = settings.vocabulary.is_special(edited.input_ids_T) | (edited.attention_mask_T == 0)
    after_special_T = jnp.pad(special_T[:-1], (1, 0), constant_values=True)
    starts_T = ~special_T & ((edited.sentence_start_T > 0) | after_special_T)
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


def delete(key: Key, edited: Edited, rate: float, settings: EditedText) -> Edited:
    """Delete a share `rate` of the tokens that are not special and close the gaps.

    Labels every remaining token: 1 + the id of the first token deleted after it, or 0 if none was.
    """
    ids_T = edited.input_ids_T
    real_T = edited.attention_mask_T > 0
    is_deleted_T = _choose(key, rate, real_T & ~settings.vocabulary.is_special(ids_T))
    deleted_T = jnp.where(is_deleted_T, 1 + ids_T, 0)
    labels_T = jnp.where(real_T, jnp.pad(deleted_T[1:], (0, 1)), UNLABELED)
    edited = _with_labels(edited, 'deletion', labels_T)
    source_T = jnp.argsort(is_deleted_T | ~real_T, stable=True)
    is_real_T = jnp.arange(len(ids_T)) < jnp.sum(real_T & ~is_deleted_T)
    return _pad(_take(edited, source_T), is_real_T, settings.vocabulary.pad_id)


def deleted_tokens(labels_BT: jax.Array) -> Targets:
    """The first ⌈T / 3⌉ labeled deletions of each row: the deleted tokens are to be predicted."""
    number = -(-labels_BT.shape[1] // 3)
    positions_BP = jnp.argsort(labels_BT <= 0, axis=1, stable=True)[:, :number]
    deleted_BP = jnp.take_along_axis(labels_BT, positions_BP, axis=1)
    weights_BP = (deleted_BP > 0).astype(jnp.float32)
    return Targets(positions_BP, jnp.maximum(deleted_BP - 1, 0), weights_BP)


def insert(key: Key, edited: Edited, rate: float, settings: EditedText) -> Edited:
    """Insert random tokens after a share `rate` of the tokens, never after the last token.

    If the row overflows, its last token (usually [SEP]) is kept and tokens before it are cut off.
    Labels every token: 1 if it was inserted, else 0. Earlier edits have no label at inserted
    tokens.
    """
    where_key, id_key = jax.random.split(key)
    length = len(edited.input_ids_T)
    t_T = jnp.arange(length)
    num_real = jnp.sum(edited.attention_mask_T)
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
    edited = _pad(edited, is_real_T, settings.vocabulary.pad_id)
    random_T = settings.vocabulary.random_ids(id_key, (length,), settings.replacement)
    labels = {
        name: jnp.where(is_new_T, UNLABELED, labels_T) for name, labels_T in edited.labels.items()
    }
    edited = edited._replace(
        input_ids_T=jnp.where(is_new_T, random_T, edited.input_ids_T),
        attention_mask_T=is_real_T.astype(jnp.int32),
        labels=labels,
    )
    return _with_labels(edited, 'insertion', jnp.where(is_real_T, is_new_T, UNLABELED))


def substitute(key: Key, edited: Edited, rate: float, settings: EditedText) -> Edited:
    """Replace a share `rate` of the tokens that are not special with random tokens.

    Labels every token: 1 if it differs from the original, else 0. Inserted tokens are kept.
    """
    where_key, id_key = jax.random.split(key)
    ids_T, real_T = edited.input_ids_T, edited.attention_mask_T > 0
    can_choose_T = real_T & ~settings.vocabulary.is_special(ids_T)
    if 'insertion' in edited.labels:
        can_choose_T &= edited.labels['insertion'] == 0
    new_T = settings.vocabulary.random_ids(id_key, ids_T.shape, settings.replacement)
    new_T = jnp.where(_choose(where_key, rate, can_choose_T), new_T, ids_T)
    labels_T = jnp.where(real_T, new_T != ids_T, UNLABELED)
    return _with_labels(edited._replace(input_ids_T=new_T), 'substitution', labels_T)


Edit: TypeAlias = Callable[[Key, Edited, float, EditedText], Edited]

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
    moved: Edited = jax.tree.map(lambda leaf_T: leaf_T[source_T], edited)
    return moved


def _pad(edited: Edited, is_real_T: jax.Array, pad_id: int) -> Edited:
    """Turn the positions behind the real tokens into padding."""
    labels = edited.labels.items()
    return edited._replace(
        input_ids_T=jnp.where(is_real_T, edited.input_ids_T, pad_id),
        attention_mask_T=jnp.where(is_real_T, edited.attention_mask_T, 0),
        token_type_ids_T=jnp.where(is_real_T, edited.token_type_ids_T, 0),
        labels={name: jnp.where(is_real_T, labels_T, UNLABELED) for name, labels_T in labels},
    )
