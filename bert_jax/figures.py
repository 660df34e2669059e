"""Figures as PNG for the screen and PDF for papers, drawn without a display or pyplot."""

import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


VARIABLE = 'BERT_JAX_FIGURES'  # environment variable: 0 for commands that draw no figures


def are_drawn() -> bool:
    """Whether commands draw figures, which takes about half of the time of the shortest runs."""
    return os.environ.get(VARIABLE, '1') != '0'


def new(width: float, height: float) -> 'Figure':
    """Create an empty figure, sizes in inches, with a layout that keeps labels from overlapping."""
    from matplotlib.figure import Figure  # takes a second to import, and is not always needed

    return Figure(figsize=(width, height), layout='constrained')


def save(figure: 'Figure', path: pathlib.Path, formats: Sequence[str] = ('png', 'pdf')) -> None:
    """Write a figure to one file per format.

    Args:
        path: the path without a suffix, such as 'runs/x/loss'.
        formats: 'png', 'pdf' or others of matplotlib.
    """
    import matplotlib

    # Journals ask for TrueType fonts; without a date the same figure gives the same file.
    with matplotlib.rc_context({'pdf.fonttype': 42}):
        for name in formats:
            metadata = {'CreationDate': None} if name == 'pdf' else {}
            figure.savefig(path.with_name(f'{path.name}.{name}'), dpi=120, metadata=metadata)
