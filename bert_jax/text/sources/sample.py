"""The source that reads the books of this package."""

import pathlib
from collections.abc import Iterator, Mapping

from bert_jax.text.sources.base import Document, Option, Piece
from bert_jax.text.sources.files import TextSource

FOLDER = pathlib.Path(__file__).parent / 'sample_books'


class SampleSource(TextSource):
    """The English books in `sample_books`, of which whole books are held out.

    A document is a chapter without its title, which is a line that starts with '# '.
    """

    location = ''
    description = '18 English books of the years 1817 to 1919, a part of this package'
    options = {
        'language': Option('en', 'ISO 639 code of the language'),
        'license': Option('public domain', 'license of the texts, recorded in the datasheet'),
    }

    def __init__(self, spec: str, where: str, settings: Mapping[str, str]):
        fixed = {'encoding': 'utf-8', 'documents': 'title:^# ', 'held_out_by': 'file'}
        super().__init__(spec, where, {**settings, **fixed})

    def find_files(self) -> list[str]:
        return sorted(map(str, FOLDER.glob('*.txt')))

    def read_piece(self, piece: Piece, file_hash: int | None) -> Iterator[Document]:
        for chapter in super().read_piece(piece, file_hash):
            _, _, text = chapter.text.partition('\n')
            yield Document(text, chapter.name, file_hash)
