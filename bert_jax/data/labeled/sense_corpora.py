"""Reads texts in which words are labeled with their senses.

Two kinds of XML (plain or compressed), which the root element tells, and JSON lines:
- SimpleWsdDoc (SemCor and MASC of google-research-datasets): <word text lemma pos sense
  break_level/>; a file is a document.
- corpus (the evaluation framework of Raganato et al. 2017): <wf>, <instance id lemma pos> in
  <sentence> in <text>; the senses are in NAME.gold.key.txt next to NAME.data.xml.
- {"words": […], "targets": [{"word", "lemma", "pos", "senses": […]}], "document"}; `word` is a
  number from 0.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from xml.etree import ElementTree

from bert_jax.data import text_files
from bert_jax.data.labeled import word_spans
from bert_jax.errors import UserError

_POS_LETTERS = {'n': 'NOUN', 'v': 'VERB', 'a': 'ADJ', 's': 'ADJ', 'r': 'ADV'}


class Target(NamedTuple):
    """A word with its sense.

    Attributes:
        span: first character and end (exclusive).
        lemma: in lower case.
        pos: NOUN, VERB, ADJ, ADV or another tag.
        senses: names of its senses, at least one.
    """

    span: tuple[int, int]
    lemma: str
    pos: str
    senses: tuple[str, ...]


class SenseSentence(NamedTuple):
    """A sentence, whose words are joined by spaces.

    Attributes:
        document: name of its document.
        text: the sentence.
        targets: its labeled words.
    """

    document: str
    text: str
    targets: tuple[Target, ...]


def read(path: str) -> Iterator[SenseSentence]:
    """Stream the sentences of a file that have labeled words.

    Raises:
        UserError: the file cannot be read, or is of another kind.
    """
    if text_files.uncompressed_name(path).endswith(('.jsonl', '.ndjson')):
        yield from _read_json_lines(path)
        return
    try:
        with text_files.open_text(path, 'utf-8') as file:
            events = ElementTree.iterparse(file, events=('start', 'end'))
            _, root = next(events)
            if root.tag not in _READERS:
                raise UserError(f'{path}: <{root.tag}> is not one of {", ".join(_READERS)}')
            yield from _READERS[root.tag](path, root, (e for event, e in events if event == 'end'))
    except ElementTree.ParseError as error:
        raise UserError(f'{path} is not valid XML: {error}') from None


def _read_words(
    path: str, root: ElementTree.Element, ended: Iterator[ElementTree.Element]
) -> Iterator[SenseSentence]:
    """Sentences of SimpleWsdDoc, which start where the break level says so."""
    words: list[str] = []
    labels: list[tuple[int, str, str, tuple[str, ...]]] = []
    document = root.get('name') or path
    for element in ended:
        if element.tag != 'word':
            continue
        if element.get('break_level') in ('SENTENCE_BREAK', 'PARAGRAPH_BREAK') and words:
            yield from _sentence(document, words, labels)
            words, labels = [], []
        get = element.attrib.get
        if get('sense'):
            lemma = get('lemma') or get('text', '')
            labels.append((len(words), lemma, get('pos', ''), (get('sense', ''),)))
        words.append(_word(get('text')))
        root.clear()
    yield from _sentence(document, words, labels)


def _read_instances(
    path: str, root: ElementTree.Element, ended: Iterator[ElementTree.Element]
) -> Iterator[SenseSentence]:
    """Sentences of <corpus>, with the senses of the file of gold keys."""
    keys_path = re.sub(r'\.data\.xml(\.\w+)?$', '.gold.key.txt', path)
    if keys_path == path:
        raise UserError(f'{path}: the name of a <corpus> must end in .data.xml')
    lines = map(str.split, text_files.read_lines(keys_path, 'utf-8'))
    keys = {line[0]: tuple(line[1:]) for line in lines if len(line) > 1}
    words: list[str] = []
    labels: list[tuple[int, str, str, tuple[str, ...]]] = []
    for element in ended:
        if element.tag in ('wf', 'instance'):
            senses = keys.get(element.get('id', ''))
            if senses:
                lemma, pos = element.get('lemma', ''), element.get('pos', '')
                labels.append((len(words), lemma, pos, senses))
            words.append(_word(element.text))
        elif element.tag == 'sentence':
            # The id of a sentence starts with that of its text: d000.s003.
            document = element.get('id', '').partition('.')[0] or path
            yield from _sentence(document, words, labels)
            words, labels = [], []
            root.clear()


def _read_json_lines(path: str) -> Iterator[SenseSentence]:
    for number, line in enumerate(text_files.read_lines(path, 'utf-8'), start=1):
        if not line.strip():
            continue
        try:
            given = json.loads(line)
            labels = [
                (int(one['word']), one['lemma'], one['pos'], tuple(one['senses']))
                for one in given['targets']
            ]
            words = [_word(word) for word in given['words']]
            yield from _sentence(str(given.get('document', path)), words, labels)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f'{path}, line {number}: expected {{"words", "targets": [{{"word", "lemma", "pos", '
                f'"senses"}}]}} ({error!r:.60})'
            ) from None
        except IndexError:
            raise UserError(f'{path}, line {number}: a target is not in its sentence') from None


def _sentence(
    document: str, words: list[str], labels: list[tuple[int, str, str, Any]]
) -> Iterator[SenseSentence]:
    if labels:
        text, spans = word_spans.join_words(words)
        yield SenseSentence(
            document,
            text,
            tuple(
                Target(spans[word], lemma.lower(), _POS_LETTERS.get(pos, pos), senses)
                for word, lemma, pos, senses in labels
                if senses
            ),
        )


def _word(text: str | None) -> str:
    return ' '.join((text or '').split()) or '_'


_READERS: dict[str, Callable[..., Iterator[SenseSentence]]] = {
    'SimpleWsdDoc': _read_words,
    'corpus': _read_instances,
}


def read_map(path: str) -> dict[str, tuple[str, ...]]:
    """Read SENSE<tab>KEY,KEY lines, which map senses to those of WordNet."""
    found = {}
    for number, line in enumerate(text_files.read_lines(path, 'utf-8'), start=1):
        sense, tab, keys = line.partition('\t')
        if not tab:
            raise UserError(f'{path}, line {number} is not SENSE<tab>KEY,KEY')
        found[sense] = tuple(key.partition(';')[0] for key in keys.split(',') if key.strip())
    return found
