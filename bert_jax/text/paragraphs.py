"""Joins the lines of hard-wrapped text into paragraphs.

Each paragraph becomes one string, and so does each heading, line of verse and list item.
"""

import itertools
import re

from bert_jax.text.scripts import STOPS, UNSPACED

# Lines of hard-wrapped text are at most this long; longer lines are whole paragraphs.
_MAX_WRAP_WIDTH = 130
_MIN_WRAP_WIDTH = 30
_SAMPLED_LINES = 4000

_LIST_ITEM = re.compile(r'\s*(?:[-*•+‣◦]|\(?\d{1,3}[.)])\s+\S')
_BULLET = re.compile(r'\s*[-*•+‣◦]\s+\S')
# The part of a line that the line before could have taken: a word, or a part of unspaced text.
_FIRST_WORD = re.compile(rf'\s*([{UNSPACED}]{{1,8}}|[^\s{UNSPACED}]+)')
_LINE_END = re.compile(rf'[.!?:{STOPS}]["”’»」』）]?\s*$')
# Two lines that are joined without a space: 'well-' and 'known', or unspaced text.
_NO_SPACE = re.compile(rf'\w-\w$|[{UNSPACED}]{{2}}$')


def join_lines(lines: list[str]) -> list[str]:
    """Join hard-wrapped lines into paragraphs with single spaces; drop blank lines."""
    width = _wrap_width(lines)
    paragraphs: list[list[str]] = []
    before = ''
    for line in lines:
        if width and _continues(before, line, width):
            paragraphs[-1].append(line)
        elif line and not line.isspace():
            paragraphs.append([line])
        before = line
    return [_join(paragraph) for paragraph in paragraphs]


def _wrap_width(lines: list[str]) -> int:
    """The column at which a document is hard-wrapped; 0 if it is not wrapped.

    In wrapped text, nearly every line before another line is full (the next word would not have
    fit) and few lines end in a stop.
    """
    step = 1 + len(lines) // _SAMPLED_LINES
    pairs = zip(lines[::step], lines[1::step], strict=False)
    sample = [(line, after) for line, after in pairs if line and not line.isspace()]
    if 10 * sum(len(line) > _MAX_WRAP_WIDTH for line, _ in sample) > len(sample):
        return 0
    adjacent = [(line, after) for line, after in sample if after and not after.isspace()]
    if not adjacent:
        return 0
    lengths = sorted(max(len(line), len(after)) for line, after in adjacent)
    width = lengths[int(0.95 * (len(lengths) - 1))]
    if not _MIN_WRAP_WIDTH <= width <= _MAX_WRAP_WIDTH:
        return 0
    full = sum(_is_full(line, after, width) for line, after in adjacent)
    stopped = sum(bool(_LINE_END.search(line[-9:])) for line, _ in adjacent)
    if full < 0.5 * len(adjacent) or stopped > 0.5 * len(adjacent):
        return 0
    if len(adjacent) < 4 and not any(after.lstrip()[0].islower() for _, after in adjacent):
        return 0
    return width


def _is_full(line: str, after: str, width: int) -> bool:
    first = _FIRST_WORD.match(after)
    assert first  # `after` is not blank
    return len(line.rstrip()) + 1 + len(first[1]) > 0.9 * width


def _continues(line: str, after: str, width: int) -> bool:
    """Whether `after` continues the paragraph of `line` in text that is wrapped at `width`."""
    if not line or not after or line.isspace() or after.isspace():
        return False
    if _is_heading(line) or _is_heading(after) or _BULLET.match(after):
        return False
    lower = after.lstrip()[0].islower()
    indented = after[0].isspace() and not line[0].isspace() and not _LIST_ITEM.match(line)
    if indented and not lower:
        return False
    return _is_full(line, after, width) or (lower and line.rstrip()[-1] not in '.!?:;')


def _is_heading(line: str) -> bool:
    """Whether a line is a wiki heading, such as ' = = Food = = '."""
    stripped = line.strip()
    return stripped.startswith('=') and stripped.endswith('=')


def _join(lines: list[str]) -> str:
    """Join lines with single spaces, or without a space within unspaced text."""
    parts = [' '.join(line.split()) for line in lines]
    joined = parts[:1]
    for before, after in itertools.pairwise(parts):
        joined += ['' if _NO_SPACE.search(before[-2:] + after[0]) else ' ', after]
    return ''.join(joined)
