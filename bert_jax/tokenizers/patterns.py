"""Regular expressions of a tokenizer.json: how short their matches are, and whether they are slow.

The library searches with Oniguruma, which tries every way in which a pattern can match. There are
exponentially many if a part that can match in several ways is itself repeated, as in (a*b?)*c.
"""

import functools
import json
import math
import re
import subprocess
import sys
from typing import NamedTuple

from bert_jax import limits

LONGEST = 1_000  # characters of the runs with which a pattern is tried
_ESCAPE = re.compile(
    r'\\(?:[pP]\{[^}]*\}|x\{[0-9a-fA-F ]+\}|x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|.)', re.DOTALL
)
_RECALL = re.compile(r"\\(?:[1-9]|[kg][<'])")  # what a group has matched, or the group again
_EMPTY = re.compile(r'\\[bBAzZGK]|[$^]')
_QUANTIFIER = re.compile(
    r'(?P<sign>[*+?])(?P<mode>[?+]?)|\{(?P<least>\d*)(?:(?P<comma>,)(?P<most>\d*))?\}\??'
)
_GROUP = re.compile(
    r'\((?:\?(?:(?P<look><?[=!])|(?P<atomic>>)|[imadu-]*:|(?P<flags>[imadu-]+)(?=\))|'
    r"P?<\w+>|'\w+'))?(?![?*])"
)
_SIGNS = {'*': (0, math.inf), '+': (1, math.inf), '?': (0, 1)}

# Tries the patterns and texts of standard input, as JSON, with limits of its own.
_TRIAL = """
import json, resource, sys
import tokenizers
given = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_CPU, (given['seconds'], given['seconds']))
split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(given['pattern']), 'isolated')
try:
    for text in given['texts']:
        split.pre_tokenize_str(text)
except BaseException:
    sys.exit(1)
"""


class Shape(NamedTuple):
    """What the matches of a part of a pattern have in common.

    Attributes:
        least: Characters of the shortest match.
        varies: Whether it can match the same text in several ways.
        is_repeated: Whether a part that varies can be repeated.
        stars: How many parts of any length can follow each other: a failed search in N characters
            takes N to this power steps.
    """

    least: int
    varies: bool = False
    is_repeated: bool = False
    stars: int = 0


_UNKNOWN = Shape(0, True, True)
_LONG = 10  # repetitions that count as any number


def shape(pattern: str) -> Shape:
    """Return the shape of a pattern; that of any pattern if it is not understood."""
    try:
        found, place = _alternatives(pattern, 0)
    except (IndexError, RecursionError):
        return _UNKNOWN
    return found if place == len(pattern) else _UNKNOWN


@functools.cache
def takes_long(pattern: str) -> bool:
    """Whether a search takes more than a few seconds, or fails, in texts that are hard for it.

    A pattern without repeated parts that vary is not tried. Others run in a process of their own on
    runs of each of their characters: the library cannot be stopped.
    """
    if not shape(pattern).is_repeated:
        return False
    characters = list(dict.fromkeys([*'aA0 \n.京', *pattern]))[:100]
    pairs = zip(characters, [*characters[1:], 'a'], strict=True)
    runs = [one * LONGEST for one in characters]
    runs += [(one + other) * (LONGEST // 2) for one, other in pairs]
    texts = [f'{run}\0{pattern}' for run in runs]
    given = {'pattern': pattern, 'texts': texts, 'seconds': limits.PATTERN_SECONDS}
    command = [sys.executable, '-P', '-c', _TRIAL]
    ran = subprocess.run(command, input=json.dumps(given), text=True, capture_output=True)
    return ran.returncode != 0


def _alternatives(pattern: str, place: int) -> tuple[Shape, int]:
    """The shape of a pattern from a place to the end of its group, and this end."""
    found, place = _sequence(pattern, place)
    while pattern[place : place + 1] == '|':
        other, place = _sequence(pattern, place + 1)
        found = Shape(
            min(found.least, other.least),
            True,
            found.is_repeated or other.is_repeated,
            max(found.stars, other.stars),
        )
    return found, place


def _sequence(pattern: str, place: int) -> tuple[Shape, int]:
    found = Shape(0)
    while place < len(pattern) and pattern[place] not in '|)':
        part, place = _atom(pattern, place)
        while (match := _QUANTIFIER.match(pattern, place)) and match[0] not in ('{}', '{,}'):
            part, place = _repeat(part, match), match.end()
        found = Shape(
            found.least + part.least,
            found.varies or part.varies,
            found.is_repeated or part.is_repeated,
            found.stars + part.stars,
        )
    return found, place


def _repeat(part: Shape, quantifier: re.Match[str]) -> Shape:
    if quantifier['sign']:
        least, most = _SIGNS[quantifier['sign']]
    else:
        least = int(quantifier['least'] or 0)
        most = int(quantifier['most'] or 0) or math.inf if quantifier['comma'] else least
    is_possessive = quantifier['mode'] == '+'
    return Shape(
        least * part.least,
        not is_possessive and (part.varies or least != most),
        part.is_repeated or (part.varies and most > 1),
        part.stars + (least != most and most > _LONG),
    )


def _atom(pattern: str, place: int) -> tuple[Shape, int]:
    """The shape of one character, class or group, and where it ends; IndexError if unknown."""
    if pattern[place] == '[':
        return Shape(1), _class_end(pattern, place)
    if pattern[place] == '(':
        return _group(pattern, place)
    if _RECALL.match(pattern, place):
        raise IndexError(place)
    if match := _EMPTY.match(pattern, place):
        return Shape(0), match.end()
    match = _ESCAPE.match(pattern, place)
    return Shape(1), match.end() if match else place + 1


def _group(pattern: str, place: int) -> tuple[Shape, int]:
    match = _GROUP.match(pattern, place)
    if not match:
        raise IndexError(place)
    inner, place = _alternatives(pattern, match.end())
    if pattern[place] != ')':
        raise IndexError(place)
    if match['look'] or match['atomic']:  # not entered again
        inner = inner._replace(least=0 if match['look'] else inner.least, varies=False)
    return inner, place + 1


def _class_end(pattern: str, place: int) -> int:
    """The end of a class of characters, which may have others inside."""
    depth = 0
    while True:
        if pattern[place] == '[':
            depth += 1
            place += pattern[place + 1 : place + 2] == '^'
            place += pattern[place + 1 : place + 2] == ']'  # the first one is a character
        elif pattern[place] == ']':
            depth -= 1
        elif pattern[place] == '\\':
            place += 1
        place += 1
        if not depth:
            return place
