"""What is shown of a text while it is written."""

import pytest

from bert_jax.inference.watch import Shown


def show(stop, *texts):
    """The pieces that are shown of a text which grows."""
    pieces = []
    shown = Shown(pieces.append, stop)
    for text in texts:
        shown.update(text, is_final=text is texts[-1])
    return pieces


@pytest.mark.parametrize(
    ('stop', 'texts', 'pieces'),
    [
        ((), ['a', 'ab', 'ab'], ['a', 'b']),
        (('xyz',), ['a', 'ax', 'axy', 'axyz'], ['a']),
        (('xyz',), ['a', 'ax', 'axy', 'axyb'], ['a', 'xyb']),
        (('xyz',), ['a', 'ax', 'axy'], ['a', 'xy']),  # it ended before the stop string was whole
        (('.',), ['a', 'ab. c'], ['a', 'b']),  # text and stop string in one token
        (('b.', 'a'), ['c', 'cab.'], ['c']),
        ((), ['a', 'a\ufffd', 'aé'], ['a', 'é']),
        ((), ['a', 'a\ufffd\ufffd'], ['a', '\ufffd\ufffd']),  # a text that ends inside a character
    ],
)
def test_pieces_are_the_text_before_the_first_stop_string(stop, texts, pieces):
    assert show(stop, *texts) == pieces
