"""Progress bars that neither flicker on a terminal nor fill a log file."""

import sys

import tqdm

SECONDS_BETWEEN_LINES = 15.0  # where stderr is a file


def bar(**settings) -> tqdm.tqdm:
    """A tqdm bar on stderr, redrawn about once a second on a terminal."""
    interval = 1.0 if sys.stderr.isatty() else SECONDS_BETWEEN_LINES
    return tqdm.tqdm(mininterval=interval, dynamic_ncols=True, **settings)
