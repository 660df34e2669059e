"""Reads texts whose words are labeled with senses.

Files are XML with one of two root elements, or JSON lines; they may be compressed:
- <SimpleWsdDoc> (SemCor and MASC of google-research-datasets): <word text lemma pos sense
  break_level/>; a file is a document.
- <corpus> (the evaluation framework of Raganato et al. 2017): <wf>, <instance id lemma pos> in
  <sentence> in <text>; the senses are in NAME.gold.key.txt next to NAME.data.xml.
- JSON: {"words": […], "targets": [{"word", "lemma", "pos", "senses": […]}], "document"}; `word` is
  an index from 0.
"""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple
from xml.etree import ElementTree

from bert_jax.errors import UserError
from bert_jax.files import parse_json
from bert_jax.labels import word_spans
from bert_jax.text import text_files

_POS_LETTERS = {'n': 'NOUN', 'v': 'VERB', 'a': 'ADJ', 's': 'ADJ', 'r': 'ADV'}


class Target(NamedTuple):
    """A word labeled with one or more senses.

    Attributes:
        span: range of characters in the sentence.
        lemma: lemma in lower case.
        pos: NOUN, VERB, ADJ, ADV or another tag.
        senses: names of the senses, at least one.
    """

    span: tuple[int, int]
    lemma: str
    pos: str
    senses: tuple[str, ...]


class SenseSentence(NamedTuple):
    """A sentence with labeled words.

    Attributes:
        document: name of the document.
        text: the words, joined by spaces.
        targets: the labeled words.
    """

    document: str
    text: str
    targets: tuple[Target, ...]


_Label = tuple[int, str, str, tuple[str, ...]]  # index of a word, lemma, part of speech, senses


def read(path: str) -> Iterator[SenseSentence]:
    """Stream the sentences of a file that have labeled words.

    Raises:
        UserError: the file cannot be read or has another format.
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
    """Yield the sentences of <SimpleWsdDoc>; `break_level` marks the first word of a sentence."""
    words: list[str] = []
    labels: list[_Label] = []
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
    """Yield the sentences of <corpus>, with the senses of the gold key file."""
    keys_path = re.sub(r'\.data\.xml(\.\w+)?$', '.gold.key.txt', path)
    if keys_path == path:
        raise UserError(f'{path}: the name of a <corpus> must end in .data.xml')
    lines = map(str.split, text_files.read_lines(keys_path, 'utf-8'))
    keys = {line[0]: tuple(line[1:]) for line in lines if len(line) > 1}
    words: list[str] = []
    labels: list[_Label] = []
    for element in ended:
        if element.tag in ('wf', 'instance'):
            senses = keys.get(element.get('id', ''))
            if senses:
                lemma, pos = element.get('lemma', ''), element.get('pos', '')
                labels.append((len(words), lemma, pos, senses))
            words.append(_word(element.text))
        elif element.tag == 'sentence':
            # The id of a sentence starts with the id of its text: d000.s003.
            document = element.get('id', '').partition('.')[0] or path
            yield from _sentence(document, words, labels)
            words, labels = [], []
            root.clear()


def _read_json_lines(path: str) -> Iterator[SenseSentence]:
    for number, line in enumerate(text_files.read_lines(path, 'utf-8'), start=1):
        if not line.strip():
            continue
        try:
            fields = parse_json(line)
            labels = [
                (int(target['word']), target['lemma'], target['pos'], tuple(target['senses']))
                for target in fields['targets']
            ]
            if any(label[0] < 0 for label in labels):
                raise IndexError
            words = [_word(word) for word in fields['words']]
            yield from _sentence(str(fields.get('document', path)), words, labels)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f'{path}, line {number}: expected {{"words", "targets": [{{"word", "lemma", "pos", '
                f'"senses"}}]}} ({error!r:.60})'
            ) from None
        except IndexError:
            raise UserError(f'{path}, line {number}: a target is not in its sentence') from None


def _sentence(document: str, words: list[str], labels: list[_Label]) -> Iterator[SenseSentence]:
    if labels:
        text, spans = word_spans.join_words(words)
        targets = tuple(
            Target(spans[word], lemma.lower(), _POS_LETTERS.get(pos, pos), senses)
            for word, lemma, pos, senses in labels
            if senses
        )
        yield SenseSentence(document, text, targets)


def _word(text: str | None) -> str:
    return ' '.join((text or '').split()) or '_'


_READERS: dict[str, Callable[..., Iterator[SenseSentence]]] = {
    'SimpleWsdDoc': _read_words,
    'corpus': _read_instances,
}


def read_map(path: str) -> dict[str, tuple[str, ...]]:
    """Read lines SENSE<tab>KEY,KEY, which map senses to sense keys of WordNet."""
    mapping = {}
    for number, line in enumerate(text_files.read_lines(path, 'utf-8'), start=1):
        sense, tab, keys = line.partition('\t')
        if not tab:
            raise UserError(f'{path}, line {number} is not SENSE<tab>KEY,KEY')
        mapping[sense] = tuple(key.partition(';')[0] for key in keys.split(',') if key.strip())
    return mapping
