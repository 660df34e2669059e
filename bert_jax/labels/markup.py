"""Reads rows from XML and from HTML-like files that are not well-formed XML."""

import contextlib
import re
from collections.abc import Collection, Iterator
from html.parser import HTMLParser
from xml.etree import ElementTree

from ml_collections import ConfigDict

from bert_jax import limits
from bert_jax.errors import UserError
from bert_jax.labels.records import InvalidRecord, Record, Row, check_text, make_record, printable
from bert_jax.text import text_files
from bert_jax.types import JsonRecord

# Declarations that do not reach the rows, and their ends.
_DECLARATION_ENDS = {'<!--': '-->', '<![': ']>', '<!': '>', '<?': '>'}
_DECLARATION = re.compile(r'<(?:!--|!\[|[!?])')
_BETWEEN_ENDS = re.compile('<[^>]*')
_TAG_START = re.compile('<[A-Za-z/]')
_VOID = ('br', 'hr', 'img', 'input', 'link', 'meta')  # HTML elements without an end


def read_elements(path: str, data: ConfigDict) -> Iterator[Record]:
    """Yield the elements named `data.record`, by default the children of the root, as rows.

    The columns of an element are its attributes and children. The value of a child is its text, or
    a row if the child has attributes or children; children with the same name are a list. Two more
    columns are `text`, the whole text of the element, and `spans`, the elements inside with their
    offsets in `text`. The line number of a place is the number of the element, from 1.

    Files that are not well-formed (bare &, attributes without quotes, several roots) are read as
    HTML, with names in lower case.

    Raises:
        UserError: the file has no markup or no such elements, or is nested too deeply.
    """
    text = text_files.read_text(path, data.encoding, option='data.encoding')
    try:
        check_text(text)
        root = _parse(text)
        _check_depth(root)
        elements = list(root)
        if data.record:
            elements = [element for element in root.iter() if _name(element.tag) == data.record]
        rows = [{'spans': list(_spans(element)), **_row(element)} for element in elements]
    except (InvalidRecord, AssertionError) as error:
        raise UserError(f'{path} cannot be read as XML: {printable(str(error))}') from None
    except RecursionError:
        raise UserError(
            f'{path}: elements are nested more than {limits.MARKUP_DEPTH} deep'
        ) from None
    if not rows:
        wanted = f'elements <{data.record}>' if data.record else 'elements inside the root'
        names = printable(', '.join(sorted({_name(element.tag) for element in root.iter()})))
        raise UserError(f'{path} has no {wanted}; it has {names}; set data.record or data.format')
    for number, row in enumerate(rows, start=1):
        yield make_record(path, number, Row(row))


def _check_depth(root: ElementTree.Element) -> None:
    """Raise RecursionError if a text would be repeated in the rows of too many elements."""
    level = [root]
    for _ in range(limits.MARKUP_DEPTH):
        level = [child for element in level for child in element]
    if level:
        raise RecursionError


def _parse(text: str) -> ElementTree.Element:
    with contextlib.suppress(ElementTree.ParseError):
        return ElementTree.fromstring(text)
    text = _without_declarations(text)
    for span in _BETWEEN_ENDS.finditer(text):
        tags = len(_TAG_START.findall(span[0]))
        if len(span[0]) > limits.TAG_CHARACTERS or tags > limits.OPEN_TAGS:
            raise InvalidRecord(f'the tag {span[0][:20]!r} is not closed')
    parser = _LenientParser(set(re.findall(r'</([^\s>]+)', text.lower())))
    parser.feed(text)
    parser.close()
    root = parser.builder.close()
    has_one_root = len(root) == 1 and not (root.text or '').strip() + (root[0].tail or '').strip()
    return root[0] if has_one_root else root


def _without_declarations(text: str) -> str:
    """Leave out comments and declarations; a '<' that begins one without an end is text.

    HTMLParser would search for the end of each to the end of the file.
    """
    parts, place, without_end = [], 0, set()
    for start in _DECLARATION.finditer(text):
        if start.start() < place:
            continue
        end_mark = _DECLARATION_ENDS[start[0]]
        end = -1 if start[0] in without_end else text.find(end_mark, start.end())
        parts.append(text[place : start.start()])
        place = start.start()
        if end < 0:
            without_end.add(start[0])
            parts.append('&lt;')
            place += 1
        else:
            place = end + len(end_mark)
    return ''.join([*parts, text[place:]])


class _LenientParser(HTMLParser):
    """Builds a tree from any markup, below an added root; elements without an end tag get one.

    If no element of a name has an end tag, as often for <p>, each ends where the next one starts.
    """

    def __init__(self, with_end: Collection[str]) -> None:
        """Create the parser; `with_end` are the names that have end tags in the file."""
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
        if len(self._open) > limits.MARKUP_DEPTH:
            raise RecursionError
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


def _row(element: ElementTree.Element) -> JsonRecord:
    """The attributes and children of an element, and its text."""
    row: JsonRecord = {_name(key): value for key, value in element.attrib.items()}
    children: dict[str, list[object]] = {}
    for child in element:
        value = _row(child) if child.attrib or len(child) else child.text or ''
        children.setdefault(_name(child.tag), []).append(value)
    row |= {name: values[0] if len(values) == 1 else values for name, values in children.items()}
    return {'text': ''.join(element.itertext()), **row}


def _spans(element: ElementTree.Element, start: int = 0) -> Iterator[JsonRecord]:
    """Yield the elements inside as spans; `start` is the offset of this element in the text."""
    start += len(element.text or '')
    for child in element:
        end = start + len(''.join(child.itertext()))
        if end > start:
            yield {'label': _name(child.tag), **child.attrib, 'start': start, 'end': end}
            yield from _spans(child, start)
        start = end + len(child.tail or '')


def _name(tag: str) -> str:
    """The name of an element or attribute without its namespace."""
    return tag.rpartition('}')[2]
