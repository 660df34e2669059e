"""Names and texts of others in Markdown, shown as they are."""

import json
import re
from collections.abc import Mapping
from typing import Any

_SPECIAL = re.compile(r'[\\`*<|~]|\](?=[(\[])|(?<!\w)_|_(?!\w)|^[#>+-](?=\s)')
_HEADER = re.compile(r'\A---\n(.*?)\n---\n+', re.DOTALL)


def escape(text: str) -> str:
    """Escape the characters of a line of text that Markdown would interpret."""
    text = _SPECIAL.sub(lambda match: f'\\{match[0]}', ' '.join(text.splitlines()))
    return re.sub(r'^(\d+)(?=[.)]\s)', r'\1\\', text)  # a list with numbers


def code(text: str) -> str:
    """Return a line of text as code, also in a cell of a table."""
    text = ' '.join(text.splitlines()).replace('|', '\\|')
    longest = max(map(len, re.findall('`+', text)), default=0)
    pad = ' ' if text[:1] == '`' or text[-1:] == '`' or not text.strip() else ''
    fence = '`' * (longest + 1)
    return f'{fence}{pad}{text}{pad}{fence}'


def header(entries: Mapping[str, Any]) -> str:
    """Return the header of a card for the Hugging Face Hub: YAML, with values as JSON."""
    lines = [f'{key}: {json.dumps(value, ensure_ascii=False)}\n' for key, value in entries.items()]
    return f'---\n{"".join(lines)}---\n\n'


def split_header(page: str) -> tuple[str, str]:
    """Split a page into the lines of its YAML header, '' without a header, and the rest."""
    match = _HEADER.match(page)
    return (match[1], page[match.end() :]) if match else ('', page)
