"""Progress bars that do not flicker on a terminal and do not flood a log file."""

import sys
from typing import Any

import tqdm

SECONDS_BETWEEN_LINES = 15.0  # when stderr is a file


def bar(**settings: Any) -> tqdm.tqdm:
    """Create a tqdm bar on stderr, redrawn once a second on a terminal."""
    interval = 1.0 if sys.stderr.isatty() else SECONDS_BETWEEN_LINES
    return tqdm.tqdm(mininterval=interval, dynamic_ncols=True, **settings)
