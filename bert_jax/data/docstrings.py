"""The English prose in the docstrings of installed Python packages, parsed and never imported."""

import ast
import collections
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from bert_jax.data.sentences import split_sentences
from bert_jax.garbage import uncollected

_MIN_SENTENCES = 3
_SKIPPED_FOLDERS = {'site-packages', 'dist-packages', 'test', 'tests', 'testing', 'idle_test'}


def _words(text: str, separator: str | None = None) -> frozenset[str]:
    return frozenset(text.split(separator))


# Sections of names with a description each; what has two sentences or more is worth reading.
_ENTRY_SECTIONS = _words(
    'parameters,other parameters,returns,yields,receives,raises,warns,attributes,arguments,args,'
    'kwargs,call arguments,keyword args,keyword arguments,exceptions,return,return value,inputs,'
    'outputs,input,output,properties,fields,options,throws,type parameters',
    ',',
)
# Sections of code, names or citations.
_SKIPPED_SECTIONS = _words(
    'methods,see also,references,reference,examples,example,functions,classes,input shape,'
    'output shape,usage,usage example,standalone usage,sample usage,example usage,for example,'
    'rtype,constants,variables,routine listings,todo,masking,list of methods,author,authors,'
    'copyright,license',
    ',',
)
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

# Stands for a piece (formula, URL, reference) without which the sentence would not read as English.
_HOLE = '\0'
_INLINE = [
    (re.compile(r':(?:math|eq|doi|cite)[\w:]*:`[^`]*`|\$[^$]+\$|https?://\S+|www\.\S+'), _HOLE),
    (re.compile(r'<[^<>\n]{1,80}>`_{1,2}'), '`'),
    (re.compile(r':[\w:.+-]+:`'), '`'),
    (re.compile(r'(?i)\b(?:in|by|from|of|see|to|and|ref\.)\s+\[[\w#*-]{1,12}\]_'), _HOLE),
    (re.compile(r'\s*\[[\w#*-]{1,12}\]_'), ''),
    (re.compile(r'!?\[([^][]+)\]\([^()]*\)'), r'\1'),
    (re.compile(r'`{1,2}~?([^`]*?)\s*`{1,2}_{0,2}'), r'\1'),
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


class PythonFile(NamedTuple):
    """A source file, with its dotted module name and the top-level package that holds it."""

    path: str
    module: str
    package: str


def python_files(packages: tuple[str, ...] = ()) -> list[PythonFile]:
    """The .py files of the standard library and of site-packages, without tests, in a fixed order.

    `packages`, if any, are the only top-level packages (or single modules) that are listed.
    """
    paths = sysconfig.get_paths()
    files = []
    for root in dict.fromkeys(paths[kind] for kind in ('stdlib', 'purelib', 'platlib')):
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
            if folder == root and packages:
                folders[:] = [name for name in folders if name in packages]
            for name in sorted(names):
                if name.endswith('.py') and not name.startswith('test_') and '_test.' not in name:
                    path = os.path.join(folder, name)
                    module = os.path.relpath(path, root)[:-3].replace(os.sep, '.')
                    files.append(PythonFile(path, module, module.partition('.')[0]))
    return [file for file in files if not packages or file.package in packages]


def documents(files: list[PythonFile], counts: collections.Counter) -> Iterator[tuple[str, str]]:
    """(name, text) of each module and class with enough prose; what is left out goes to `counts`.

    A paragraph of which most was read before is a duplicate; a document of nothing but duplicates
    is one too.
    """
    seen_strings, seen_sentences = set(), set()
    for file in files:
        for name, strings in _docstrings(file, counts):
            new = [string for string in strings if string not in seen_strings]
            seen_strings.update(new)
            paragraphs = [part for string in new for part in prose(string)]
            kept = [part for part in paragraphs if not _is_duplicate(part, seen_sentences)]
            counts['docstrings'] += len(strings)
            counts['duplicate_docstrings'] += len(strings) - len(new)
            counts['duplicate_paragraphs'] += len(paragraphs) - len(kept)
            if sum(map(len, kept)) >= _MIN_SENTENCES:
                yield name, '\n\n'.join(map(' '.join, kept))
            elif kept:
                counts['short_documents'] += 1
            elif paragraphs or len(new) < len(strings):
                counts['duplicate_documents'] += 1
            elif strings:
                counts['documents_without_prose'] += 1


def prose(docstring: str) -> list[list[str]]:
    """The paragraphs of a docstring that are English prose, each a list of its sentences.

    Left out are mark-up, parameter tables, code, doctests, formulas, references and URLs.
    """
    paragraphs = []
    for title, underlined, lines in _sections(docstring.expandtabs().splitlines()):
        if title in _SKIPPED_SECTIONS:
            continue
        least = 2 if title in _ENTRY_SECTIONS else 1
        blocks = _paragraphs(lines) if least == 1 else _entries(lines, underlined)
        for block in blocks:
            kept = _prose_sentences(' '.join(block))
            if len(kept) >= least:
                paragraphs.append(kept)
    return paragraphs


def _prose_sentences(text: str) -> list[str]:
    """The sentences of a paragraph that are prose; none if more than half of it is not."""
    if _LEGAL.search(text):
        return []
    if _INLINE_HINT.search(text):
        for pattern, replacement in _INLINE:
            text = pattern.sub(replacement, text)
    kept = [sentence for sentence in split_sentences(text) if _is_prose(sentence)]
    return kept if 2 * sum(map(len, kept)) > len(text) else []


def _is_duplicate(sentences: list[str], seen: set[int]) -> bool:
    """Whether more than half of a paragraph was seen; adds it to `seen`."""
    old = 0
    for sentence in sentences:
        key = ''.join(_WORD.findall(sentence)).lower()
        old += len(sentence) * (key in seen)
        seen.add(key)
    return 2 * old > sum(map(len, sentences))


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


def _docstrings(file: PythonFile, counts) -> Iterator[tuple[str, list[str]]]:
    """(name, docstrings) of the module with its functions, then of each class with its methods."""
    try:
        with open(file.path, 'rb') as source:
            code = source.read()
    except OSError:
        counts['unreadable_files'] += 1
        return
    if b'"""' not in code and b"'''" not in code:
        return
    tree = _parse(code)
    if tree is None:
        counts['unparsable_files'] += 1
        return
    counts['files'] += 1
    module = file.module.removesuffix('.__init__')
    stack = [(tree, module)]
    while stack:
        node, name = stack.pop()
        strings = [ast.get_docstring(node)]
        inner = []
        for child in node.body:
            if isinstance(child, ast.ClassDef):
                inner.append((child, f'{name}.{child.name}'))
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                strings.append(ast.get_docstring(child))
        stack += reversed(inner)
        yield name, [string for string in strings if string]


def _parse(code: bytes) -> ast.Module | None:
    """The syntax tree, or None. A collection of garbage amid so many new nodes costs a third."""
    try:
        with uncollected(), warnings.catch_warnings():
            warnings.simplefilter('ignore')
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _sections(lines: list[str]) -> Iterator[tuple[str, bool, list[str]]]:
    """(title in lower case, whether it is underlined, lines) of each section.

    An underlined title (numpy style) rules until the next one; the body of `Title:` (Google style)
    is what is indented below it. Text of no known section has the title ''.
    """
    title, underlined, body = '', False, []
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if number < len(lines) and line.strip() and _UNDERLINE.fullmatch(lines[number]):
            yield title, underlined, body
            title, underlined, body = line.strip().lower().rstrip(':'), True, []
            number += 1
        elif (colon := _COLON_SECTION.fullmatch(line)) and _is_known(colon[1].lower()):
            end = _next(lines, number, lambda later, line=line: _stands_out(later, _indent(line)))
            yield title, underlined, body
            body = []
            yield colon[1].lower(), False, lines[number:end]
            number = end
        else:
            body.append(line)
    yield title, underlined, body


def _is_known(title: str) -> bool:
    return title in _ENTRY_SECTIONS or title in _SKIPPED_SECTIONS


def _entries(lines: list[str], underlined: bool) -> Iterator[list[str]]:
    """The description in each entry of a list of parameters, as lines without the name."""
    base = min((_indent(line) for line in lines if line.strip()), default=0)
    block = []
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
    """The lines of each paragraph or list item, without directives, tables and code."""
    block, literal = [], False
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
    """Where the code, table or directive that starts in the line before `number` ends; 0 if none.

    `literal`: the last paragraph ended in a colon, so that an indented block after it is code.
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
        return _next(lines, number, lambda later: _stands_out(later, indent))
    if literal and indent and not _ITEM.match(line):
        return _next(lines, number, lambda later: _stands_out(later, indent - 1))
    return number if stripped.startswith('#') or _COLON_SECTION.fullmatch(line) else 0


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _stands_out(line: str, indent: int) -> bool:
    """Whether a line ends a block whose lines are indented deeper than `indent`."""
    return bool(line.strip()) and _indent(line) <= indent


def _next(lines: list[str], number: int, test) -> int:
    """The number of the first line from `number` on that passes the test, or how many there are."""
    while number < len(lines) and not test(lines[number]):
        number += 1
    return number
