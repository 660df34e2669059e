"""Damages bytes at random, as a hostile or a broken file would have them."""

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
