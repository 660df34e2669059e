"""Damages bytes at random, as a hostile or a broken file would have them."""

import copy
import json
import math
import random

# Pieces of files that parsers treat in a special way.
_TOKENS = [
    b'\xff' * 9,
    b'\x80' * 20,
    b'\0' * 4,
    b'9' * 30,
    b'-1',
    b'4294967296',
    b'1e400',
    b'NaN',
    b'null',
    b'{}',
    b'[]',
    b'[' * 50,
    b'{"a":' * 50,
    b'"',
    b"'",
    b'<',
    b'<a>' * 50,
    b'</a>',
    b'&',
    b'<!--',
    b'\\',
    b'..',
    b'\r',
    b'\n',
    b'\t',
    '\u2028'.encode(),
    '\ud800'.encode('utf-8', 'surrogatepass'),
]


def mutate(sample: bytes, random_: random.Random) -> bytes:
    """Return a sample with up to four changes."""
    data = bytearray(sample)
    for _ in range(random_.randint(1, 4)):
        place = random_.randrange(len(data) + 1)
        end = min(len(data), place + random_.choice((1, 2, 4, 16, 256)))
        change = random_.randrange(6)
        if change == 0 and place < len(data):
            data[place] ^= 1 << random_.randrange(8)
        elif change == 1:
            del data[place:end]
        elif change == 2:
            data[place:place] = data[place:end] * random_.choice((1, 2, 100))
        elif change == 3:
            data[place:end] = random_.choice(_TOKENS)
        elif change == 4:
            data[place:place] = random_.choice(_TOKENS)
        elif random_.random() < 0.3:
            del data[place:]
    return bytes(data)


# Values that a key of JSON should not have.
_VALUES = [
    None,
    True,
    -1,
    0,
    999,
    1_000,
    10**6,
    10**7,
    2**63,
    10**400,
    -0.5,
    1e-300,
    1e308,
    math.nan,
    math.inf,
    '',
    'x',
    '\0',
    '\ud800',
    '../..',
    'x' * 10_000,
    '٣',
    [],
    [[]],
    [None],
    ['x'],
    [1, 2],
    {},
    {'': 0},
    {'a.b': {}},
    {'kind': 'none'},
    {'method': 'lora'},
]


def mutate_json(sample: bytes, random_: random.Random) -> bytes:
    """Return a sample of JSON with one to three values or keys changed, or with other bytes."""
    if random_.random() < 0.1:
        return mutate(sample, random_)
    root = [json.loads(sample)]
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        places = list(_places(root))
        inner, key = random_.choice(places)
        change = random_.randrange(10)
        if change < 6:
            inner[key] = copy.deepcopy(random_.choice(_VALUES))
        elif change == 6 and inner is not root:
            del inner[key]
        elif change == 7 and isinstance(inner, dict):
            inner[random_.choice(['x', '', 'kind', 'a.b', f'{key}2'])] = inner.pop(key)
        else:
            other, name = random_.choice(places)
            inner[key] = copy.deepcopy(other[name])
    return json.dumps(root[0]).encode('utf-8', 'surrogatepass')


def _places(value):
    """The container and the key of every value inside a value."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])
