"""Shows the progress of the libraries that train vocabularies, with the time left.

They report only to the standard error of the process: tokenizers in JSON, sentencepiece in its log.
"""

import contextlib
import json
import math
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator

import tqdm

from bert_jax import progress

_STDERR = 2  # file descriptor
_DELAY = 2.0  # seconds; shorter training is not shown
_JOIN = 5.0  # seconds
# SentencePiece's unigram trainer prunes its candidates to this share in each round, until there are
# at most this many times the pieces of the vocabulary.
_PRUNED_TO, _LAST_SIZE = 0.75, 1.1

# Lines of JSON, and of the log of sentencepiece with its settings in braces.
_REPORT = re.compile(r'\s|[{}]|\w+_spec \{|[IW]\d{4} |WARNING: All log messages before absl')

Position = tuple[int, int]  # how much of the work is done, and all of the work
Parse = Callable[[str], Position | None]


def parse_merges(line: str) -> Position | None:
    """Read a report of the tokenizers library about its merges."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        report = json.loads(line)
        if report['stage'] == 'Compute merges':
            return report['current'], report['total']
    return None


def sentencepiece_parser(size: int) -> Parse:
    """Return a parser of the log of sentencepiece for a vocabulary of this size."""
    first: list[int] = []

    def parse(line: str) -> Position | None:
        if match := re.search(r'EM sub_iter=\d+ size=(\d+)', line):
            first.append(int(match[1]))
            rounds, done = (
                math.log(first[0] / pieces) / -math.log(_PRUNED_TO)
                for pieces in (size * _LAST_SIZE, int(match[1]))
            )
            return round(done), max(1, math.ceil(rounds))
        if match := re.search(r'Merged: .* merges=(\d+)', line):
            return int(match[1]), size
        return None

    return parse


@contextlib.contextmanager
def shown(text: str, parse: Parse) -> Iterator[None]:
    """Show a bar of the work that a library does in the block, instead of what it writes.

    Args:
        text: Describes the work.
        parse: Reads a line that the library writes to standard error.
    """
    reading, writing = os.pipe()
    original = os.dup(_STDERR)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, original)
        if _writes_to_process(sys.stderr):  # what Python writes must not come back here
            copy = stack.enter_context(open(original, 'w', closefd=False, buffering=1))
            stack.enter_context(contextlib.redirect_stderr(copy))
        bar = stack.enter_context(progress.bar(_DELAY, desc=text))
        reader = threading.Thread(target=_read, args=(reading, bar, parse, original), daemon=True)
        reader.start()
        os.dup2(writing, _STDERR)
        os.close(writing)
        try:
            yield
        finally:
            os.dup2(original, _STDERR)  # closes the last copy of `writing`: the reader ends,
            reader.join(_JOIN)  # unless a process that was started meanwhile has another copy


def _read(reading: int, bar: tqdm.tqdm, parse: Parse, original: int) -> None:
    """Move the bar to each position that is read; pass on what the library did not report."""
    with open(reading, encoding='utf-8', errors='replace') as lines:
        for line in lines:
            if position := parse(line):
                done, bar.total = position
                bar.update(max(0, min(done, bar.total) - bar.n))
            elif not _REPORT.match(line):
                with contextlib.suppress(OSError):
                    os.write(original, line.encode())


def _writes_to_process(stream: object) -> bool:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return bool(stream.fileno() == _STDERR)  # type: ignore[attr-defined]
    return False
