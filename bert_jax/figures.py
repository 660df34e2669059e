"""Figures as PNG for the screen and PDF for papers, drawn without a display or pyplot."""

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new(width: float, height: float) -> 'Figure':
    """Create an empty figure, in inches, whose labels are laid out without overlaps."""
    from matplotlib.figure import Figure  # a second to import, and not always needed

    return Figure(figsize=(width, height), layout='constrained')


def save(figure: 'Figure', path: pathlib.Path, formats: Sequence[str] = ('png', 'pdf')) -> None:
    """Write a figure once in each format.

    Args:
        path: the path without a suffix, such as 'runs/x/loss'.
        formats: 'png', 'pdf' or others of matplotlib.
    """
    import matplotlib

    # TrueType fonts, which journals ask for, and no date: the same figure is the same file.
    with matplotlib.rc_context({'pdf.fonttype': 42}):
        for name in formats:
            metadata = {'CreationDate': None} if name == 'pdf' else {}
            figure.savefig(path.with_name(f'{path.name}.{name}'), dpi=120, metadata=metadata)
