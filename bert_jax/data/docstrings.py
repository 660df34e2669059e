"""The English prose in the docstrings of installed Python packages, parsed and never imported."""

import ast
import collections
import gc
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator
from typing import NamedTuple

from bert_jax.data.sentences import split_sentences

_MIN_SENTENCES = 3
_SKIPPED_FOLDERS = {'site-packages', 'dist-packages', 'test', 'tests', 'testing', 'idle_test'}


def _words(text: str, separator: str | None = None) -> frozenset[str]:
    return frozenset(text.split(separator))


# Sections whose body is a table of names, code or citations: numpy style, then Google style.
_TABLE_SECTIONS = _words(
    'parameters,other parameters,returns,yields,receives,raises,warns,attributes,methods,see also,'
    'references,examples,example,functions,classes,arguments,args,kwargs,inputs,outputs,input,'
    'output,input shape,output shape,call arguments,reference,usage,usage example,keyword args,'
    'keyword arguments,exceptions,return,rtype,properties,constants,variables,routine listings,'
    'standalone usage,todo,options,sample usage,example usage,masking,list of methods,fields,'
    'type parameters,throws,return value,author,authors,copyright,license,for example',
    ',',
)
_KEPT_DIRECTIVES = {'note', 'warning', 'tip', 'important', 'caution', 'attention', 'admonition'}

_UNDERLINE = re.compile(r'\s*([-=~^"`#*+])\1{2,}\s*')
_COLON_SECTION = re.compile(r'\s*([A-Za-z][A-Za-z ]{2,30}?)\s*:{1,2}\s*')
_DIRECTIVE = re.compile(r'\s*\.\.\s+([\w-]+)::(.*)')
_EXPLICIT_MARKUP = re.compile(r'\s*\.\.(\s|$)')
_FIELD = re.compile(r'\s*[:@](?:param|type|return|rtype|raise|keyword|arg|ivar|cvar|var|key|yield)')
_ITEM = re.compile(r'(\s*)(?:[-*•+o]|\(?(?:\d{1,2}|[a-z])[.)])\s+')
_FENCE = re.compile(r'\s*(```|~~~)')
_TABLE_LINE = re.compile(r'\s*(?:\|.*\||\+[-=+]{3,}|[-=]{3,}(?:\s+[-=]{3,})+)\s*$')

# Stands for a piece (formula, URL, reference) without which the sentence would not read as English.
_HOLE = '\0'
_INLINE = [
    (re.compile(r':(?:math|eq|doi|cite)[\w:]*:`[^`]*`|\$[^$]+\$|https?://\S+|www\.\S+'), _HOLE),
    (re.compile(r'<[^<>\n]{1,80}>`_{1,2}'), '`'),
    (re.compile(r':[\w:.+-]+:`'), '`'),
    (re.compile(r'\s*\[[\w#*-]{1,12}\]_'), ''),
    (re.compile(r'!?\[([^][]+)\]\([^()]*\)'), r'\1'),
    (re.compile(r'`{1,2}~?([^`]*?)\s*`{1,2}_{0,2}'), r'\1'),
    (re.compile(r'(?<!\w)(\*{1,2})(?=\S)([^*\n]+?)(?<=\S)\1(?!\w)'), r'\2'),
    (re.compile(r'</?[a-zA-Z][\w-]*/?>'), _HOLE),
    (re.compile(r'\\([*_`|<>])'), r'\1'),
]
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
                if name.endswith('.py'):
                    path = os.path.join(folder, name)
                    module = os.path.relpath(path, root)[:-3].replace(os.sep, '.')
                    files.append(PythonFile(path, module, module.partition('.')[0]))
    return [file for file in files if not packages or file.package in packages]


def documents(files: list[PythonFile], counts: collections.Counter) -> Iterator[tuple[str, str]]:
    """(name, text) of each module and class with enough prose; what is left out goes to `counts`.

    A paragraph of which most was read before is a duplicate; a document of nothing but duplicates
    is one too.
    """
    seen = set()
    for file in files:
        for name, strings in _docstrings(file, counts):
            counts['docstrings'] += len(strings)
            paragraphs = [part for string in strings for part in prose(string)]
            kept = [part for part in paragraphs if not _is_duplicate(part, seen)]
            counts['duplicate_paragraphs'] += len(paragraphs) - len(kept)
            if sum(map(len, kept)) >= _MIN_SENTENCES:
                yield name, '\n\n'.join(map(' '.join, kept))
            elif kept:
                counts['short_documents'] += 1
            elif paragraphs:
                counts['duplicate_documents'] += 1
            elif strings:
                counts['documents_without_prose'] += 1


def prose(docstring: str) -> list[list[str]]:
    """The paragraphs of a docstring that are English prose, each a list of its sentences.

    Left out are mark-up, parameter tables, code, doctests, formulas, references and URLs.
    """
    paragraphs = []
    for block in _blocks(docstring.expandtabs().splitlines()):
        text = ' '.join(block)
        if _LEGAL.search(text):
            continue
        for pattern, replacement in _INLINE:
            text = pattern.sub(replacement, text)
        sentences = split_sentences(text)
        kept = [sentence for sentence in sentences if _is_prose(sentence)]
        if 2 * sum(map(len, kept)) > len(text):
            paragraphs.append(kept)
    return paragraphs


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
    collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    finally:
        if collecting:
            gc.enable()


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """The lines of each paragraph or list item, without sections, directives and code.

    `skip` is the indentation that a skipped body exceeds (or, for a numpy section, -1).
    """
    block, skip, literal = [], None, False
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        stripped = line.strip()
        if not stripped:
            literal = bool(block) and block[-1].endswith(':')
            if block:
                yield block
            block = []
            continue
        indent = len(line) - len(line.lstrip())
        after = lines[number] if number < len(lines) else ''
        if _UNDERLINE.fullmatch(after) and len(stripped) < 60 and not block:
            skip = -1 if stripped.lower().rstrip(':') in _TABLE_SECTIONS else None
            number += 1
            continue
        if skip is not None and indent > skip:
            continue
        skip = None
        section = _COLON_SECTION.fullmatch(line)
        if section and section[1].lower() in _TABLE_SECTIONS:
            skip = indent
        elif (directive := _DIRECTIVE.match(line)) and directive[1] in _KEPT_DIRECTIVES:
            if block:
                yield block
            block = [directive[2].strip()] if directive[2].strip() else []
            continue
        elif directive or _EXPLICIT_MARKUP.match(line) or _FIELD.match(line):
            skip = indent
        elif literal and indent and not _ITEM.match(line):
            skip = indent - 1
        elif stripped.startswith('>>>'):
            number = _next(lines, number, lambda later: not later.strip())
        elif _FENCE.match(line):
            number = _next(lines, number, _FENCE.match) + 1
        elif _TABLE_LINE.match(line) or _UNDERLINE.fullmatch(line):
            number = _next(lines, number, lambda later: not later.strip())
            block = []
            continue
        elif item := _ITEM.match(line):
            if block:
                yield block
            block = [line[item.end() :].strip()]
            continue
        elif stripped.startswith('#'):
            pass
        else:
            block.append(stripped)
            continue
        if block:
            yield block
        block = []
    if block:
        yield block


def _next(lines: list[str], number: int, test) -> int:
    """The number of the first line from `number` on that passes the test, or how many there are."""
    while number < len(lines) and not test(lines[number]):
        number += 1
    return number
