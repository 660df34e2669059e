"""Sources that read a column of Parquet and Arrow files or of Hugging Face datasets."""

import contextlib
import glob
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from bert_jax import errors, files
from bert_jax.storage import paths
from bert_jax.storage.path import BucketError, Path
from bert_jax.text import arrow_tables, saved_datasets, text_files
from bert_jax.text.sources.base import COMMON_OPTIONS, Document, Option, Piece
from bert_jax.text.sources.file_source import FileSource

Arrow: TypeAlias = Any  # an object of pyarrow, which ships no types

_TEXT_TYPES = ('string', 'large_string', 'string_view', 'binary', 'large_binary')  # of Arrow


class ParquetSource(FileSource):
    """A column of Parquet or Arrow files: a row is a document.

    Rows without text are counted and left out. Files are streamed by row group or record batch.
    """

    description = 'Parquet or Arrow files, one document per row; ** matches folders recursively'
    options = {
        **FileSource.options,
        'field': Option('text', 'column that holds the text; a.b is field b of the column a'),
    }

    def __init__(self, spec: str, where: str, settings: Mapping[str, str]):
        super().__init__(spec, where, settings)
        self._path, self._share_read = '', 0.0  # the current file, and how much of it is read

    def position_in_file(self) -> int:
        return int(self._share_read * self._sizes.get(self._path, 0))

    def read_piece(self, piece: Piece, file_hash: int | None) -> Iterator[Document]:
        self._path = piece.path
        for number, text in enumerate(self._texts(piece)):
            name = piece.place(number)
            if text is None:
                self.count('missing_field', name)
            else:
                yield Document(self.replace_surrogates(text, name), name, file_hash)

    def parts(self, path: str) -> Iterator[str]:
        return (text or '' for text in self._texts(Piece(path)))

    def unread_fields(self) -> list[str]:
        import pyarrow

        path, field = self.paths[0], self.settings['field']
        with contextlib.suppress(OSError, BucketError, pyarrow.ArrowException):  # counted before
            with paths.open_arrow(path) as file:
                schema, _ = _open(file, field, Piece(path))
            return [name for name in schema.names if name != _field_path(schema, field)[0]]
        return []

    def _texts(self, piece: Piece) -> Iterator[str | None]:
        """Yield the text of each row, with surrogates for undecodable bytes; None for null."""
        import pyarrow  # takes 0.1 s

        self._share_read = 0.0
        try:
            for column, share_read in _columns(piece, self.settings['field']):
                self._share_read = share_read
                for row in column.cast(pyarrow.large_binary()).to_pylist():
                    yield row if row is None else row.decode('utf-8', 'surrogateescape')
        except BucketError:  # not the fault of the file
            raise
        except (OSError, pyarrow.ArrowException) as error:
            raise errors.UserError(
                f'cannot read {piece.path} as Parquet or Arrow: {error}'
            ) from error


class HuggingFaceSource(ParquetSource):
    """A Hugging Face dataset on disk.

    The folder was saved by `save_to_disk` of a `Dataset` or `DatasetDict`, or has the Parquet files
    of a split as on the Hub: data/train-00000-of-00002.parquet or train/0000.parquet.
    """

    location = 'FOLDER'
    description = 'a Hugging Face dataset on disk, one document per row'
    options = {**ParquetSource.options, 'split': Option('train', 'split to read')}

    def list_files(self) -> None:
        super().list_files()
        info = files.read_json(paths.path(self.paths[0]).with_name('dataset_info.json'), default={})
        if info.get('license') and self.license == COMMON_OPTIONS['license'].default:
            self.license = str(info['license'])

    def find_files(self) -> list[str]:
        folder, split = paths.bring(self.where), self.settings['split']
        if not folder.is_dir():
            raise errors.UserError(f'source {self.spec!r}: there is no folder {self.where!r}')
        splits = saved_datasets.splits(folder)
        if splits is not None:
            if split not in splits:
                raise errors.unknown(f'split of {folder}', split, splits)
            folder /= split
        state = saved_datasets.state(folder)
        if state is not None:
            if state.split not in (None, split, self.options['split'].default):
                raise errors.unknown(f'split of {folder}', split, [state.split])
            return [*state.files]
        return self._published_files(folder, split)

    def _published_files(self, folder: Path, split: str) -> list[str]:
        """The Parquet files of a split, all in one folder."""
        all_files = text_files.matching_files(f'{glob.escape(str(folder))}/**/*.parquet')
        names = {path: paths.path(path).relative_to(folder).parts[-2:] for path in all_files}
        split_name = re.compile(rf'{re.escape(split)}([-.].*)?')
        split_files = [path for path in all_files if any(map(split_name.fullmatch, names[path]))]
        folders = sorted({str(paths.path(path).parent) for path in split_files})
        if len(folders) > 1:
            raise errors.UserError(
                f'source {self.spec!r}: split {split!r} is in several folders: name one of '
                f'{", ".join(folders)}'
            )
        if not split_files:
            others = sorted({paths.path(path).name for path in all_files})[:5]
            raise errors.UserError(
                f'source {self.spec!r}: no Parquet file of split {split!r}, nor a dataset of '
                f'save_to_disk, in {folder}' + (f'; it has {", ".join(others)}' if others else '')
            )
        return split_files


def _columns(piece: Piece, name: str) -> Iterator[tuple[Arrow, float]]:
    """Yield a column as short arrays, and the share of the file that is read.

    Raises:
        UserError: The column is missing or is not text.
    """
    import pyarrow
    from pyarrow import compute

    path = piece.path
    with paths.open_arrow(path) as file:
        schema, batches = _open(file, name, piece)
        column_name, *inner = _field_path(schema, name)
        if column_name not in schema.names:
            raise errors.unknown(f'column of {path}', name, schema.names)
        dtype = schema.field(column_name).type
        for key in inner:
            dtype = dtype.field(key).type
        dtype = dtype.value_type if pyarrow.types.is_dictionary(dtype) else dtype
        if str(dtype) not in _TEXT_TYPES:
            raise errors.UserError(f'{path}: column {name!r} has values of type {dtype}, not text')
        for batch, share in batches:
            column = batch.column(column_name)
            column = compute.struct_field(column, inner) if inner else column
            yield column, share


def _field_path(schema: Arrow, name: str) -> list[str]:
    """The column `name`, or with a dot perhaps a column and the fields inside it."""
    if name in schema.names:
        return [name]
    fields, path = schema, []
    for key in name.split('.'):
        if key not in [field.name for field in fields]:
            return [name]
        path.append(key)
        inner = fields.field(key).type
        fields = inner if str(inner).startswith('struct') else ()
    return path


def _open(file: Arrow, name: str, piece: Piece) -> tuple[Arrow, arrow_tables.Batches]:
    """The schema of a file, and batches of a piece with at least the column `name`.

    A range of bytes stands for the row groups or batches that would begin in the range if all had
    the same size. A stream cannot be divided: all of it belongs to the range that begins at 0.
    """
    return arrow_tables.open_table(
        file, [name], lambda number: _indices_in_piece(number, piece), is_first=not piece.start
    )


def _indices_in_piece(number: int, piece: Piece) -> list[int]:
    """Indices of the row groups or batches, out of `number`, that belong to a piece."""
    if piece.is_whole:
        return list(range(number))
    assert piece.size
    stop = piece.size if piece.stop is None else piece.stop
    return [index for index in range(number) if piece.start <= index * piece.size // number < stop]
