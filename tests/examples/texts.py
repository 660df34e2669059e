"""Texts whose token ids identify the tokens: token i of a text has the id i + FIRST."""

import dataclasses

import numpy as np

from bert_jax.examples.text_example_source import RowSettings

FIRST = 10


class Tokenizer:
    pad_id, cls_id, first_id, sep_id = 0, 1, 1, 2
    vocab_size = 10**9
    is_cls_last = False


class ClsLast(Tokenizer):
    is_cls_last = True


@dataclasses.dataclass
class Shard:
    tokens: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    files: tuple = ()


@dataclasses.dataclass
class Split:
    shards: list


def make_split(documents: list[list[int]], num_shards: int = 1) -> Split:
    """A split with the given sentence lengths of each document."""
    shards, token = [], FIRST
    for part in np.array_split(np.arange(len(documents)), num_shards):
        lengths = [length for number in part for length in documents[number]]
        shards.append(
            Shard(
                np.arange(token, token + sum(lengths), dtype=np.uint32),
                np.cumsum([0, *lengths], dtype=np.int64),
                np.cumsum([0, *(len(documents[number]) for number in part)], dtype=np.int64),
            )
        )
        token += sum(lengths)
    return Split(shards)


def some_documents(count=40, seed=0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [list(rng.integers(1, 15, size=rng.integers(1, 30))) for _ in range(count)]


class Where:
    """The document and sentence of each token, and whether it starts a sentence."""

    def __init__(self, documents):
        lengths = np.concatenate(documents)
        owner = np.repeat(np.arange(len(documents)), [len(document) for document in documents])
        self.starts = set(np.cumsum([0, *lengths[:-1]]) + FIRST)
        self.sentence = np.repeat(np.arange(len(lengths)), lengths)
        self.document = np.repeat(owner, lengths)


def row_settings(
    documents, sequence_length=32, batch_size=64, seed=0, num_shards=1, mark_sentences=False
):
    split = make_split(documents, num_shards)
    return RowSettings(split, Tokenizer, sequence_length, batch_size, seed, mark_sentences)


def taken_apart(batch):
    """Yield the tokens of A, those of B, and the label of each row; check the layout."""
    ids, types, mask = (batch[name] for name in ('input_ids', 'token_type_ids', 'attention_mask'))
    for row, type_row, mask_row, label in zip(
        ids.tolist(), types.tolist(), mask.tolist(), batch['next_sentence_label'], strict=True
    ):
        first, second = (i for i, token in enumerate(row) if token == Tokenizer.sep_id)
        padding = len(row) - second - 1
        assert row[0] == Tokenizer.cls_id
        assert row[second + 1 :] == [Tokenizer.pad_id] * padding
        assert mask_row == [1] * (second + 1) + [0] * padding
        assert type_row == [0] * (first + 1) + [1] * (second - first) + [0] * padding
        yield row[1:first], row[first + 1 : second], int(label)


def epoch_of(source, number=0):
    return source.examples(np.arange(source.num_examples) + number * source.num_examples)


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])
        assert one[name].dtype == other[name].dtype
