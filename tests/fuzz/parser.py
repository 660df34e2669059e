"""What a parser of files of strangers is, and how its damaged samples are read."""

import pathlib
import random
from collections.abc import Callable
from typing import NamedTuple

from bert_jax import tokenizers
from tests.fuzz import mutation

MANY = 300, 20_000
LOADS = 6, 1_000  # of a parser that loads a model each time


class Parser(NamedTuple):
    """A parser.

    Attributes:
        samples: Valid files.
        read: Reads a file with the bytes of a damaged sample in an empty folder.
        mutate: Damages a sample.
        least: Number of files to try at least, quickly and in the slow test.
    """

    samples: list[bytes]
    read: Callable[[bytes, pathlib.Path], object]
    mutate: Callable[[bytes, random.Random], bytes] = mutation.mutate
    least: tuple[int, int] = (6, 20_000)


def read_file(name: str, read: Callable[[pathlib.Path], object]):
    def call(data: bytes, folder: pathlib.Path) -> object:
        (folder / name).write_bytes(data)
        return read(folder / name)

    return call


def read_tokenizer(path: pathlib.Path) -> object:
    tokenizer = tokenizers.load(str(path))
    return tokenizer.encode_batch(['A word, 한국어 and [MASK].'])


def train_tokenizer(kind: str) -> bytes:
    text = ['the cat sat on the mat', 'a naïve café in Zürich', 'the dog and the bird'] * 20
    return tokenizers.train(kind, text).to_json().encode()
