"""Extraction of English prose from docstrings in NumPy, Google and reStructuredText style."""

import re
from collections.abc import Callable, Iterator

from bert_jax.text.sentences import split_sentences


def _words(text: str, separator: str | None = None) -> frozenset[str]:
    return frozenset(text.split(separator))


# Sections of named entries; an entry is kept if its description has at least two sentences.
_ENTRY_SECTIONS = _words(
    'parameters,other parameters,returns,yields,receives,raises,warns,attributes,arguments,args,'
    'kwargs,call arguments,keyword args,keyword arguments,exceptions,return,return value,inputs,'
    'outputs,input,output,properties,fields,options,throws,type parameters',
    ',',
)
# Sections of code, names or citations, skipped as a whole.
_SKIPPED_SECTIONS = _words(
    'methods,see also,references,reference,examples,example,functions,classes,input shape,'
    'output shape,usage,usage example,standalone usage,sample usage,example usage,for example,'
    'rtype,constants,variables,routine listings,todo,masking,list of methods,author,authors,'
    'copyright,license',
    ',',
)
_KNOWN_SECTIONS = _ENTRY_SECTIONS | _SKIPPED_SECTIONS
_KEPT_DIRECTIVES = {'note', 'warning', 'tip', 'important', 'caution', 'attention', 'admonition'}

_UNDERLINE = re.compile(r'\s*([-=~^"`#*+])\1{2,}\s*')
_COLON_SECTION = re.compile(r'\s*([A-Za-z][A-Za-z ]{2,30}?)\s*:{1,2}\s*')
_DIRECTIVE = re.compile(r'\s*\.\.\s+([\w-]+)::(.*)')
_EXPLICIT_MARKUP = re.compile(r'\s*\.\.(\s|$)')
_FIELD = re.compile(r'\s*[:@](?:param|type|return|rtype|raise|keyword|arg|ivar|cvar|var|key|yield)')
_ITEM = re.compile(r'^(\s*)(?:[-*•+]|\(?(?:\d{1,2}|[a-z])[.)])\s+')
_ENTRY = re.compile(r'^[\w.*`, ]+(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?:\s+(?=\S)')
_FENCE = re.compile(r'\s*(```|~~~)')
_TABLE_LINE = re.compile(r'\s*(?:\|.*\||\+[-=+]{3,}|[-=]{3,}(?:\s+[-=]{3,})+)\s*$')

# Replaces a formula, URL or reference; a sentence that contains one is dropped.
_HOLE = '\0'
# Bounded and possessive repetitions keep the time linear in the length of a docstring.
_INLINE = [
    (
        re.compile(r':(?:math|eq|doi|cite)[\w:]{0,80}:`[^`]*`|\$[^$]+\$|https?://\S+|www\.\S+'),
        _HOLE,
    ),
    (re.compile(r'<[^<>\n]{1,80}>`_{1,2}'), '`'),
    (re.compile(r':[\w:.+-]{1,80}:`'), '`'),
    (re.compile(r'(?i)\b(?:in|by|from|of|see|to|and|ref\.)\s+\[[\w#*-]{1,12}\]_'), _HOLE),
    (re.compile(r'(?:(?<!\s)\s+)?\[[\w#*-]{1,12}\]_'), ''),
    (re.compile(r'!?\[([^][]+)\]\([^()]*\)'), r'\1'),
    (re.compile(r'`{1,2}~?((?:\s*+[^`\s]++)*+)\s*+`{1,2}_{0,2}'), r'\1'),
    (re.compile(r'(?<!\w)(\*{1,2})(?=\S)([^*\n]+?)(?<=\S)\1(?!\w)'), r'\2'),
    (re.compile(r'</?[a-zA-Z][\w-]*/?>'), _HOLE),
    (re.compile(r'\\([*_`|<>])'), r'\1'),
]
_INLINE_HINT = re.compile(r'[`*<\[$\\]|http|www')
_CODE_LIKE = re.compile(
    r'[\0{}\[\]=<>\\|@#$%^~]|\w_|_\w|\w\(|\w\.\w|\w::|--\w|\w/\w|[a-z][A-Z]|\*\w|&'
)
_START = re.compile(r'["\'(]?[A-Z]')
_LEGAL = re.compile(r'copyright|licen[sc]e|warrant|all rights reserved', re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z']+")
_FUNCTION_WORDS = _words(
    'a an the this that these those it its is are was were be been being has have had do does did '
    'will would can could should may might must not no of to in on at by for from with into as if '
    'when while where which who what how than then and or but so because there all any each some '
    'only also more most other such same you your we our they their them he she his her i'
)


def extract_prose(docstring: str) -> list[list[str]]:
    """Return the paragraphs of English prose in a docstring, each a list of its sentences.

    Markup, parameter tables, code, doctests, formulas, references and URLs are left out.
    """
    paragraphs = []
    for title, underlined, lines in _sections(docstring.expandtabs().splitlines()):
        if title in _SKIPPED_SECTIONS:
            continue
        has_entries = title in _ENTRY_SECTIONS
        blocks = _entries(lines, underlined) if has_entries else _paragraphs(lines)
        for block in blocks:
            sentences = _prose_sentences(' '.join(block))
            if len(sentences) >= (2 if has_entries else 1):
                paragraphs.append(sentences)
    return paragraphs


def _prose_sentences(text: str) -> list[str]:
    """The prose sentences of a paragraph; [] if they are at most half of its text."""
    if _LEGAL.search(text):
        return []
    if _INLINE_HINT.search(text):
        for pattern, replacement in _INLINE:
            text = pattern.sub(replacement, text)
    sentences = [sentence for sentence in split_sentences(text, 'en') if _is_prose(sentence)]
    return sentences if 2 * sum(map(len, sentences)) > len(text) else []


def _is_prose(sentence: str) -> bool:
    """Whether a sentence is complete, English, and nearly free of code."""
    if sentence[-1] not in '.!?' and not sentence.endswith(('.)', '."', ".'")):
        return False
    if not _START.match(sentence) or not sentence.isascii():
        return False
    words = sentence.split()
    if len(words) < 4 or _HOLE in sentence:
        return False
    code = sum(1 for word in words[:-1] if _CODE_LIKE.search(word))
    if code > len(words) // 8:
        return False
    letters = _WORD.findall(sentence)
    if sum(map(len, letters)) < 0.75 * (len(sentence) - len(words)):
        return False
    return sum(word.lower() in _FUNCTION_WORDS for word in letters) >= 0.2 * len(letters)


def _sections(lines: list[str]) -> Iterator[tuple[str, bool, list[str]]]:
    """Yield (lowercase title, whether the title is underlined, lines) of each section.

    A section with an underlined title (NumPy style) extends to the next title; the body of
    `Title:` (Google style) is the indented block below it. Text outside a known section has the
    title ''.
    """
    title, underlined = '', False
    body: list[str] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if number < len(lines) and line.strip() and _UNDERLINE.fullmatch(lines[number]):
            yield title, underlined, body
            title, underlined, body = line.strip().lower().rstrip(':'), True, []
            number += 1
        elif (colon := _COLON_SECTION.fullmatch(line)) and colon[1].lower() in _KNOWN_SECTIONS:
            end = _end_of_block(lines, number, _indent(line))
            yield title, underlined, body
            body = []
            yield colon[1].lower(), False, lines[number:end]
            number = end
        else:
            body.append(line)
    yield title, underlined, body


def _entries(lines: list[str], underlined: bool) -> Iterator[list[str]]:
    """Yield the description of each entry of a parameter list, as lines without the name."""
    base = min((_indent(line) for line in lines if line.strip()), default=0)
    block: list[str] = []
    for line in [*lines, '']:
        starts = line.strip() and _indent(line) <= base
        if starts or not line.strip() or _ITEM.match(line):
            if block and not any('>>>' in part or '```' in part for part in block):
                yield block
            block = []
        if starts and not underlined:
            block = [_ENTRY.sub('', line.strip(), count=1)]
        elif not starts and line.strip():
            block.append(_ITEM.sub('', line).strip())


def _paragraphs(lines: list[str]) -> Iterator[list[str]]:
    """Yield the lines of each paragraph or list item, skipping directives, tables and code."""
    block: list[str] = []
    literal = False
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        end = _markup_end(lines, number, literal)
        directive = _DIRECTIVE.match(line)
        item = _ITEM.match(line)
        if line.strip() and not (end or item or directive):
            block.append(line.strip())
            continue
        if not line.strip():
            literal = bool(block) and block[-1].endswith(':')
        if block and not _TABLE_LINE.match(line):
            yield block
        block = []
        if directive and directive[1] in _KEPT_DIRECTIVES:
            block = [directive[2].strip()]
        elif end:
            number = end
        elif item:
            block = [line[item.end() :].strip()]
    if block:
        yield block


def _markup_end(lines: list[str], number: int, literal: bool) -> int:
    """Index after the code, table or directive that starts in line `number` − 1; 0 if none.

    Args:
        lines: Lines of the section.
        number: Index of the line after the first line of the markup.
        literal: Whether the last paragraph ended in a colon, so that an indented block is code.
    """
    line = lines[number - 1]
    stripped = line.strip()
    if not stripped:
        return 0
    indent = _indent(line)
    if stripped.startswith('>>>') or _TABLE_LINE.match(line) or _UNDERLINE.fullmatch(line):
        return _next(lines, number, lambda later: not later.strip())
    if _FENCE.match(line):
        return _next(lines, number, _FENCE.match) + 1
    if _EXPLICIT_MARKUP.match(line) or _FIELD.match(line):
        return _end_of_block(lines, number, indent)
    if literal and indent and not _ITEM.match(line):
        return _end_of_block(lines, number, indent - 1)
    return number if stripped.startswith('#') or _COLON_SECTION.fullmatch(line) else 0


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _end_of_block(lines: list[str], number: int, indent: int) -> int:
    """Index of the first line from `number` on that is indented by at most `indent`."""
    return _next(lines, number, lambda line: line.strip() and _indent(line) <= indent)


def _next(lines: list[str], number: int, test: Callable[[str], object]) -> int:
    """Index of the first line from `number` on that passes a test, else len(lines)."""
    while number < len(lines) and not test(lines[number]):
        number += 1
    return number
