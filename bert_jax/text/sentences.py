"""Rule-based sentence splitting for all scripts that mark the end of a sentence.

Hard-wrapped lines are joined into paragraphs, which are split after their full stops. Measured in
experiments/studies/sentences.
"""

import re
from collections.abc import Iterator

from bert_jax.text import abbreviations, paragraphs
from bert_jax.text.abbreviations import Abbreviations
from bert_jax.text.scripts import STOPS

# Text without a full stop (a table, a log) is split at a space before this many characters.
MAX_SENTENCE_CHARACTERS = 1000

# A set of characters comes first because the search for it is fast. Bounded and possessive
# repetitions keep the time linear in the length of a line.
_CLOSERS = r'["\'”’»›)\]}_*」』】）》〉%s]*+(?:\[\d{1,4}\])*+'
_STOP = re.compile(
    rf'[.!?…:;\u037e\u0f0d{STOPS}](?:'
    # White space follows, possibly after quotes, brackets, a footnote or an emoticon. The colon
    # often replaces the full stop in Armenian, and the semicolon is the Greek question mark.
    r'(?:(?<=[.!?…])(?<![.!?…].)[.!?…]*+|(?<=\u0f0d)\u0f0d*+'
    r'|(?<=[\u0561-\u0587]:)|(?<=[\u0561-\u0587]»:)|(?<=[\u0370-\u03ff\u1f00-\u1fff][;\u037e]))'
    rf'{_CLOSERS % "“"}(?: [:;]-?[()DP]{{1,9}})?(?=\s)'
    # These stops need no white space, but one between digits or letters is a decimal point.
    rf'|(?<=[{STOPS}])(?!(?<=[\dＡ-Ｚａ-ｚ]\uff0e)[\dＡ-Ｚａ-ｚ])[{STOPS}]*+{_CLOSERS % ""})'
)
_NEXT_WORD = re.compile(r'[\s"\'“”‘’«„‹›(\[{¿¡*_—–-]{0,20}(\w{1,40})')
_PUNCTUATION = tuple('.,;:?!…،؛、，；：')
_LOOSE_CLOSERS = re.compile(r'(?: (?:[”’»)\]]|\'\')(?= |$))*(?P<quote> "(?= |$))?')
_ENUMERATOR = re.compile(r'\W*(?:\d{1,3}|[ivxlcIVXLC]{1,5}|[A-Za-z])\W*')
_ORDINAL = re.compile(r'\d{1,2}')
_ACRONYM = re.compile(r'(?:\w\.)+\w')


def split_sentences(text: str, language: str = 'und', one_per_line: bool = False) -> list[str]:
    """Return the sentences of a document, in order; none is empty.

    All characters except white space are kept; white space in a sentence becomes a single space. A
    sentence longer than `MAX_SENTENCE_CHARACTERS` is split at spaces.

    Args:
        text: The document.
        language: Code of its language, which selects the abbreviations; see `abbreviations.find`.
        one_per_line: Whether every line is a sentence.
    """
    if one_per_line:
        sentences = [' '.join(line.split()) for line in text.split('\n') if line.strip()]
    else:
        known = abbreviations.find(language)
        lines = paragraphs.join_lines(text.splitlines())
        sentences = [sentence for line in lines for sentence in _split_line(line, known)]
    if any(len(sentence) > MAX_SENTENCE_CHARACTERS for sentence in sentences):
        return [piece for sentence in sentences for piece in _split_long(sentence)]
    return sentences


def _split_line(line: str, known: Abbreviations) -> Iterator[str]:
    start = counted = quotes = 0
    for match in _STOP.finditer(line):
        if match.start() < start or not _is_end(line, start, match, known):
            continue
        end = match.end()
        loose = _LOOSE_CLOSERS.match(line, end)
        assert loose  # the pattern matches the empty string
        quotes += line.count('"', counted, end)
        counted = end
        # Closing marks that a tokenizer has separated by spaces, as in `word . " Next`.
        opens = loose['quote'] and loose.end() < len(line) and quotes % 2 == 0
        end = loose.start('quote') if opens else loose.end()
        yield line[start:end]
        start = end + line.startswith(' ', end)
    if start < len(line):
        yield line[start:]


def _is_end(line: str, start: int, match: re.Match[str], known: Abbreviations) -> bool:
    """Whether the sentence that starts at `start` ends with the matched stop."""
    position, end = match.span()
    after = end + line.startswith(' ', end)
    # ',,' is an opening quote.
    if line.startswith(_PUNCTUATION, after) and not line.startswith(',,', after):
        return False
    following = _NEXT_WORD.match(line, end)
    word = following[1] if following else ''
    stop = match[0][0]
    # A plain stop before a lowercase word counts only if sentences start in lowercase here.
    starts_lower = _is_lower(line[start]) and match[0] in '.?!'
    if stop in '.!?…:;' and _is_lower(word) and not starts_lower:
        return False
    if stop not in '.\uff0e' or match[0].startswith('..'):
        return True
    if position - start <= 8 and _ENUMERATOR.fullmatch(line, start, position):
        return False
    first = max(start, position - MAX_SENTENCE_CHARACTERS)  # bounds the time
    last = line[max(first, line.rfind(' ', first, position) + 1) : position]
    return not _is_abbreviation(last.lstrip('"\'“”‘’«„([{—–-_*'), word, known)


def _is_lower(word: str) -> bool:
    """Whether a word starts in lowercase; Georgian letters do not count as lowercase."""
    return word[:1].islower() and not '\u10d0' <= word[0] <= '\u10ff'


def _is_abbreviation(last: str, word: str, known: Abbreviations) -> bool:
    """Whether the stop after `last` belongs to an abbreviation, so that `word` continues it."""
    if last in known.titles:
        return bool(word)
    if last in known.numbered and word[:1].isdigit():
        return True
    is_initial = len(last) == 1 and last.isupper()
    is_ordinal = known.has_ordinals and _ORDINAL.fullmatch(last)
    if last in known.others or is_initial or is_ordinal or _ACRONYM.fullmatch(last):
        return bool(word) and word not in known.first_words
    return '\u0531' <= last[-1:] <= '\u0587'  # Armenian: '.' is a pause, ':' and '։' are stops


def _split_long(sentence: str) -> Iterator[str]:
    start = 0
    while len(sentence) - start > MAX_SENTENCE_CHARACTERS:
        space = sentence.rfind(' ', start + 1, start + MAX_SENTENCE_CHARACTERS)
        end = space if space > 0 else start + MAX_SENTENCE_CHARACTERS
        yield sentence[start:end]
        start = end + sentence.startswith(' ', end)
    yield sentence[start:]
