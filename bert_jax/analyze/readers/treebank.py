"""Reads dependency trees from CoNLL-U."""

from collections.abc import Sequence
from typing import NamedTuple

from bert_jax.errors import UserError
from bert_jax.labels import word_spans
from bert_jax.labels.formats import expand_globs
from bert_jax.labels.word_spans import WordOffsets
from bert_jax.storage.names import is_number
from bert_jax.text import text_files

COLUMNS = {'upos': 3, 'xpos': 4, 'deprel': 7}  # columns that can be labels of words
# XPOS tags of punctuation, which the scores of trees leave out (Hewitt and Manning 2019).
PUNCTUATION = ("''", ',', '.', ':', '``', '-LRB-', '-RRB-')
_HEAD = 6


class TreebankSentence(NamedTuple):
    """A sentence.

    Attributes:
        document: number of the document.
        text: the words, joined by spaces.
        words: range of characters of each word.
        tags: column of COLUMNS → the tag of each word.
        heads: index of the head of each word; −1 for the root.
    """

    document: int
    text: str
    words: WordOffsets
    tags: dict[str, tuple[str, ...]]
    heads: tuple[int, ...]

    @property
    def is_punctuation(self) -> list[bool]:
        """Whether each word is punctuation, by XPOS, or by UPOS in treebanks without XPOS."""
        xpos = self.tags['xpos']
        if all(tag == '_' for tag in xpos):
            return [tag == 'PUNCT' for tag in self.tags['upos']]
        return [tag in PUNCTUATION for tag in xpos]


def read(patterns: Sequence[str], limit: int | None = None) -> list[TreebankSentence]:
    """Read the sentences of files without multiword tokens and empty nodes.

    Documents begin at '# newdoc'; without such lines, every sentence is a document.

    Args:
        patterns: files or globs.
        limit: maximum number of sentences; None for all.

    Raises:
        UserError: a file cannot be read or is not CoNLL-U, or there is no sentence.
    """
    trees: list[TreebankSentence] = []
    document = -1
    for path in expand_globs(patterns):
        rows: list[list[str]] = []
        for number, line in enumerate([*text_files.read_lines(path, 'utf-8'), ''], start=1):
            place = f'{path}, line {number}'
            if line.startswith('#'):
                document += line.startswith('# newdoc')
            elif line.strip():
                rows.append(line.split('\t'))
                if len(rows[-1]) != 10:
                    raise UserError(f'{place} is not CoNLL-U: {len(rows[-1])} columns, not 10')
            elif any(is_number(row[0]) for row in rows):
                trees.append(_tree(rows, document, place))
                rows = []
            if len(trees) == limit:
                break
    if not trees:
        raise UserError(f'{", ".join(patterns)} has no sentence')
    if document >= 0:
        return [tree._replace(document=max(tree.document, 0)) for tree in trees]
    return [tree._replace(document=number) for number, tree in enumerate(trees)]


def _tree(rows: list[list[str]], document: int, place: str) -> TreebankSentence:
    words = [row for row in rows if is_number(row[0])]
    text, offsets = word_spans.join_words([row[1].strip() or '_' for row in words])
    tags = {name: tuple(row[column] for row in words) for name, column in COLUMNS.items()}
    try:
        heads = tuple(int(row[_HEAD]) - 1 for row in words)
    except ValueError:
        raise UserError(f'the sentence before {place} has a word without a head') from None
    if any(not -1 <= head < len(words) for head in heads):
        raise UserError(f'the sentence before {place} has a head that is not one of its words')
    return TreebankSentence(document, text, offsets, tags, heads)
