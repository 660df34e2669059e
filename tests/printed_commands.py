"""The commands that README and the pages in docs/ print, in the order in which they are read."""

import pathlib
import re
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
# As README lists the pages; the first ones make what later ones use.
FIRST = ('README.md', 'docs/quickstart.md', 'docs/data.md', 'docs/labeled_data.md')
_STARTS = ('python ', 'echo ', 'printf ', 'MODEL=')
_OTHERS = ('pip ', 'dask ', 'bash ')  # installations, clusters and cloud machines


class Printed(NamedTuple):
    """A command and the page that prints it."""

    page: str
    text: str


def pages() -> list[pathlib.Path]:
    """Return README and the pages in docs/, first those that others build on."""
    first = [ROOT / name for name in FIRST]
    return [*first, *(page for page in sorted(ROOT.glob('docs/*.md')) if page not in first)]


def commands(*, with_others: bool = False) -> list[Printed]:
    """Return the commands in code blocks and in tables; without those that `…` abbreviates.

    Args:
        with_others: also installations, clusters and cloud machines.
    """
    found = []
    for page in pages():
        for text in _in_blocks(page.read_text(encoding='utf-8')):
            starts = _STARTS + (_OTHERS if with_others else ())
            for part in text.split(' && '):
                if part.startswith(starts) and '…' not in part:
                    found.append(Printed(str(page.relative_to(ROOT)), part))
    return found


def _in_blocks(page: str) -> list[str]:
    """Return the lines of indented blocks, with continuations joined, and code in table cells."""
    page = re.sub(r'^```.*?^```', '', page, flags=re.DOTALL | re.MULTILINE)
    lines = re.sub(r' *\\\n +', ' ', page).splitlines()
    found = []
    for line in lines:
        if line.startswith('    '):
            found.append(line.strip())
        elif line.startswith('|'):
            found += re.findall(r'`(python -m [^`]*)`', line.replace('\\|', '|'))
    return found
