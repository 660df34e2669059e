"""Shows how much of the text of sources has been read, and the time left."""

from collections.abc import Iterator, Sequence
from typing import Any

from bert_jax import progress
from bert_jax.text.sources import Source


class ReadingBar:
    """A progress bar in bytes; in documents if the size of a source is unknown.

    Use it as a context manager, or read all of `then_close`.
    """

    def __init__(self, text: str, sources: Sequence[Source]):
        """Create the bar.

        Args:
            text: Describes the work.
            sources: The sources in the order they are read; each as often as it is read.
        """
        self._sizes = {source.spec: source.size() for source in sources}
        sizes = [self._sizes[source.spec] for source in sources]
        known = [size for size in sizes if size is not None]
        self._in_bytes = len(known) == len(sizes) and sum(known) > 0
        shown: dict[str, Any] = {'unit': ' documents'}
        if self._in_bytes:
            shown = {'total': sum(known), 'unit': 'B', 'unit_scale': True}
        self._bar = progress.bar(desc=text, smoothing=0, miniters=1, **shown)
        self._start = 0  # bytes before the current source
        self._size = 0  # bytes of the current source
        self._documents = 0

    def __enter__(self) -> 'ReadingBar':
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.close()

    def texts(self, sources: Sequence[Source]) -> Iterator[str]:
        """Yield the texts of the sources, and move the bar."""
        for source in sources:
            self.begin(source)
            for document in source.documents():
                self.move(source.position, 1)
                yield document.text

    def then_close(self, texts: Iterator[str]) -> Iterator[str]:
        """Yield the texts, then close the bar: what follows is not reading."""
        yield from texts
        self._move_to(self._start + self._size)
        self._bar.close()

    def skip(self, source: Source) -> None:
        """Count a source that was read before."""
        self.begin(source)
        self._resume_at(self._start + self._size)

    def begin(self, source: Source, is_resumed: bool = False) -> None:
        """Begin to read a source, or resume at its position."""
        self._start, self._size = self._start + self._size, self._sizes[source.spec] or 0
        if is_resumed:
            self._resume_at(self._start + source.position)

    def move(self, position: int, documents: int, text: str = '') -> None:
        """Move the bar.

        Args:
            position: Bytes of the current source that have been read.
            documents: Number of documents since the last call.
            text: Further progress, shown after the bar.
        """
        self._documents += documents
        counted = f'{self._documents:,} documents' if self._in_bytes else ''
        self._bar.set_postfix_str(', '.join(filter(None, [counted, text])), refresh=False)
        if self._in_bytes:
            self._move_to(self._start + min(position, self._size))
        else:
            self._bar.update(documents)

    def _move_to(self, position: int) -> None:
        if self._in_bytes:
            self._bar.update(max(position - self._bar.n, 0))

    def _resume_at(self, position: int) -> None:
        """Begin at a position that says nothing about the speed of this run."""
        if self._in_bytes:
            self._bar.initial = self._bar.n = self._bar.last_print_n = position
