"""Reads rows from XML, and from HTML-like files that are not quite XML."""

import contextlib
import re
from collections.abc import Collection, Iterator
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree

from ml_collections import ConfigDict

from bert_jax.data import text_files
from bert_jax.data.labeled.records import (
    InvalidRecord,
    Record,
    Row,
    check_text,
    make_record,
    printable,
)
from bert_jax.errors import UserError

_VOID = ('br', 'hr', 'img', 'input', 'link', 'meta')  # HTML elements without an end


def read_elements(path: str, data: ConfigDict) -> Iterator[Record]:
    """The elements named `data.record`, by default the children of the root, as rows.

    Columns are the attributes and the children of an element: the text of a child, or a row of its
    own if it has attributes or children; a list if several children have the same name. Two more
    columns are `text`, the whole text of the element, and `spans`, the elements inside with their
    offsets in it. Places have the number of the element, from 1, as line number.

    Files that are not well-formed (bare &, attributes without quotes, several roots) are read like
    HTML, where names are lower case.

    Raises:
        UserError: the file has no markup or no such elements, or is nested too deeply.
    """
    text = text_files.read_text(path, data.encoding)
    try:
        check_text(text)
        root = _parse(text)
        found = list(root)
        if data.record:
            found = [element for element in root.iter() if _name(element.tag) == data.record]
        rows = [{'spans': list(_spans(element)), **_row(element)} for element in found]
    except (InvalidRecord, AssertionError) as error:
        raise UserError(f'{path} cannot be read as XML: {printable(str(error))}') from None
    except RecursionError:
        raise UserError(f'{path}: elements are nested too deeply') from None
    if not rows:
        wanted = f'elements <{data.record}>' if data.record else 'elements inside the root'
        names = printable(', '.join(sorted({_name(element.tag) for element in root.iter()})))
        raise UserError(f'{path} has no {wanted}; it has {names}; set data.record or data.format')
    for number, row in enumerate(rows, start=1):
        yield make_record(path, number, Row(row))


def _parse(text: str) -> ElementTree.Element:
    with contextlib.suppress(ElementTree.ParseError):
        return ElementTree.fromstring(text)
    parser = _LenientParser(set(re.findall(r'</([^\s>]+)', text.lower())))
    parser.feed(text)
    parser.close()
    root = parser.builder.close()
    has_one_root = len(root) == 1 and not (root.text or '').strip() + (root[0].tail or '').strip()
    return root[0] if has_one_root else root


class _LenientParser(HTMLParser):
    """Builds a tree from anything, below a root of its own; elements without an end get one.

    An element whose kind never has an end, as <p> often, ends where the next of its kind starts.
    """

    def __init__(self, with_end: Collection[str]) -> None:
        """Create the parser; `with_end` are the kinds of elements that have ends in the file."""
        super().__init__()
        self._with_end = with_end
        self.builder = ElementTree.TreeBuilder()
        self._open: list[str] = []
        self.handle_starttag('file', [])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self._with_end:
            self.handle_endtag(tag)
        self.builder.start(tag, {name: value or '' for name, value in attrs})
        self._open.append(tag)
        if tag in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open[1:]:
            closed = ''
            while closed != tag:
                closed = self._open.pop()
                self.builder.end(closed)

    def handle_data(self, data: str) -> None:
        self.builder.data(data)

    def close(self) -> None:
        super().close()
        while self._open:
            self.builder.end(self._open.pop())


def _row(element: ElementTree.Element) -> dict[str, Any]:
    """The attributes and children of an element, and its text."""
    row: dict[str, Any] = {_name(key): value for key, value in element.attrib.items()}
    children: dict[str, list[Any]] = {}
    for child in element:
        value = _row(child) if child.attrib or len(child) else child.text or ''
        children.setdefault(_name(child.tag), []).append(value)
    row |= {name: values[0] if len(values) == 1 else values for name, values in children.items()}
    return {'text': ''.join(element.itertext()), **row}


def _spans(element: ElementTree.Element, start: int = 0) -> Iterator[dict[str, Any]]:
    """The elements inside, with offsets in a text in which this one starts at `start`."""
    place = start + len(element.text or '')
    for child in element:
        end = place + len(''.join(child.itertext()))
        if end > place:
            yield {'label': _name(child.tag), **child.attrib, 'start': place, 'end': end}
            yield from _spans(child, place)
        place = end + len(child.tail or '')


def _name(tag: str) -> str:
    """The name of an element or attribute without its namespace."""
    return tag.rpartition('}')[2]
