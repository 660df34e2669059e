"""Reads WordNet's database files: senses of lemmas, synsets, hypernyms, lexicographer files.

Format: wndb(5WN) and senseidx(5WN). The folder has index.sense and data.noun, data.verb, data.adj
and data.adv; Debian's packages wordnet-base and wordnet-sense-index install it as
/usr/share/wordnet.
"""

import dataclasses
import pathlib
import sys
from collections import defaultdict

from bert_jax.errors import UserError
from bert_jax.text import text_files

_POS = {'1': 'NOUN', '2': 'VERB', '3': 'ADJ', '4': 'ADV', '5': 'ADJ'}
_FILES = {'noun': 'NOUN', 'verb': 'VERB', 'adj': 'ADJ', 'adv': 'ADV'}
_POS_OF_POINTER = {'n': 'NOUN', 'v': 'VERB', 'a': 'ADJ', 's': 'ADJ', 'r': 'ADV'}
Synset = tuple[str, str]  # part of speech and offset


@dataclasses.dataclass(frozen=True)
class WordNet:
    """The senses of a WordNet, named by sense keys such as 'bank%1:17:01::'.

    Attributes:
        keys_of: (lemma, part of speech) → its senses, most frequent first.
        synset_of: sense → its synset.
        keys_in: synset → its senses.
        hypernyms: synset → its hypernyms, of classes and of instances.
        file_of: synset → number of its lexicographer file, such as '05' for animals.
    """

    keys_of: dict[tuple[str, str], list[str]]
    synset_of: dict[str, Synset]
    keys_in: dict[Synset, list[str]]
    hypernyms: dict[Synset, list[Synset]]
    file_of: dict[Synset, str]


def read(folder: str) -> WordNet:
    """Read the files of a folder; UserError if one is missing or not in this format."""
    check(folder)
    root = pathlib.Path(folder)
    ranked: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    synset_of: dict[str, Synset] = {}
    keys_in: dict[Synset, list[str]] = defaultdict(list)
    synsets: dict[Synset, Synset] = {}  # interned: each synset is in memory once, not four times
    for line in _lines(root / 'index.sense'):
        try:
            key, offset, number, _ = line.split(' ')
            lemma, _, rest = key.partition('%')
            pos = _POS[rest[0]]
        except (ValueError, LookupError):
            raise UserError(f'{root}/index.sense is not in WordNet format: {line!r:.60}') from None
        ranked[lemma, pos].append((int(number), key))
        synset = synsets.setdefault((pos, offset), (pos, offset))
        synset_of[key] = synset
        keys_in[synset].append(key)
    hypernyms: dict[Synset, list[Synset]] = {}
    file_of: dict[Synset, str] = {}
    for name, pos in _FILES.items():
        for line in _lines(root / f'data.{name}'):
            offset, file_number, *fields = line.partition(' | ')[0].split()
            synset = synsets.setdefault((pos, offset), (pos, offset))
            file_of[synset] = sys.intern(file_number)
            # Synset type, number of words (hexadecimal), words with ids, number of pointers.
            pointers = fields[2 + 2 * int(fields[1], 16) + 1 :]
            symbols, offsets, tags = pointers[0::4], pointers[1::4], pointers[2::4]
            targets = [
                (_POS_OF_POINTER[tag], target)
                for symbol, target, tag in zip(symbols, offsets, tags, strict=False)
                if symbol in ('@', '@i')
            ]
            hypernyms[synset] = [synsets.setdefault(target, target) for target in targets]
    keys_of = {lemma: [key for _, key in sorted(senses)] for lemma, senses in ranked.items()}
    return WordNet(keys_of, synset_of, dict(keys_in), hypernyms, file_of)


def check(folder: str) -> None:
    """Raise UserError if a file of the folder is missing."""
    for name in ('index.sense', *(f'data.{name}' for name in _FILES)):
        path = pathlib.Path(folder, name)
        if not path.is_file():
            raise UserError(f'{path} does not exist: is {path.parent} a folder of WordNet 3.0?')


def _lines(path: pathlib.Path) -> list[str]:
    """The lines of a file without its license."""
    return [line for line in text_files.read_lines(str(path), 'utf-8') if line[:2] != '  ']
