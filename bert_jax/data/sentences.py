"""Splits a document into sentences by rule, for any script that marks the end of a sentence.

First lines become units (a hard-wrapped paragraph is joined again, a heading, verse or list item
stays alone), then each unit is cut after its full stops. Measured in experiments/studies/sentences.
"""

import re

# A run of text without any stop (a table, a log) is cut at a blank before this many characters.
MAX_SENTENCE_CHARACTERS = 1000

# Lines of hard-wrapped text are at most this long; longer ones are whole paragraphs.
_MAX_WRAP_WIDTH = 130
_MIN_WRAP_WIDTH = 30
_SAMPLED_LINES = 4000

_CLOSERS = r'["\'”’“»›)\]}_*]'
# Danda, Urdu, Arabic, Armenian, Ethiopic, Khmer, Burmese and Tibetan full stops and question marks.
_OTHER_STOPS = '\u0964\u0965\u06d4\u061f\u0589\u1362\u1367\u1368\u17d4\u104b\u0f0d'
_STOP = re.compile(
    # A blank follows, perhaps after quotes, brackets, a footnote or an emoticon. Armenian is often
    # typed with a colon in place of its own full stop. A run of stops is tried once only.
    rf'(?:(?<![.!?…])[.!?…]++|[{_OTHER_STOPS}]+|(?:(?<=[\u0561-\u0587])|(?<=[\u0561-\u0587]»)):)'
    rf'{_CLOSERS}*+(?:\[\d+\])*(?: [:;]-?[()DP]+)?(?=\s)'
    # Chinese and Japanese write no blank after theirs.
    r'|[。！？｡]+[」』】）》〉”’"]*'
)
_NEXT_WORD = re.compile(r'[\s"\'“”‘’«»„‹›(\[{¿¡*_—–-]*(\w+)')
_PUNCTUATION = tuple('.,;:?!…')
_LOOSE_CLOSERS = re.compile(r'(?: (?:[”’»)\]]|\'\')(?= |$))*(?P<quote> "(?= |$))?')
_ENUMERATOR = re.compile(r'\W*(?:\d{1,3}|[ivxlcIVXLC]{1,5}|[A-Za-z])\W*')
_LIST_ITEM = re.compile(r'\s*(?:[-*•+‣◦]|\(?\d{1,3}[.)])\s+\S')
_BULLET = re.compile(r'\s*[-*•+‣◦]\s+\S')
_HEADING = re.compile(r'\s*(=+) .* =+\s*$')
_ACRONYM = re.compile(r'(?:\w\.)*\w')


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Never the last word of a sentence when a capital or a number follows.
_TITLES = _words(
    'mr mrs ms messrs mme mlle dr drs prof rev hon gen col maj capt cpt lt sgt cpl adm cmdr gov '
    'sen rep pres mt ft st ste fr sr sra srta dra ing dipl mag '
    'e.g eg i.e ie viz cf vs ca approx z.b d.h bzw u.a vgl т.е т.к напр ул им'
)
# Not the last word when a number follows.
_NUMBERED = _words(
    'no nos nr ext para vol vols p pp ch chap sec sect fig figs eq eqs art op tab pt par ver v vv '
    'jan feb mar apr jun jul aug sep sept oct nov dec стр рис гл'
)
# Last word only if what follows is a common first word; the same holds for U.S., J. and the like.
_EITHER = _words(
    'inc ltd co corp bros jr esq etc al dept univ assn est ave blvd rd ed eds tr trans repr '
    'jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat sun '
    'calif fla ga ill mass mich minn pa tex wash ariz colo conn'
)
_FIRST_WORDS = _words(
    'The A An This That These Those There Here It Its He She We You They His Her Our Your Their My '
    'I In On At By For From To With Of As If When While Where What Who Why How Which But And Or So '
    'Yet Not No Yes Then Thus Also Although Though After Before Since Because However Once Only '
    'Even Some Many Most Such Both All Any Each Every Another Other Let Please Do Did Does Is Are '
    'Was Were Have Has Had Will Would Can Could Should May Might Must Now Later Today Early '
    'During Under Over Between Both Despite Until Unlike Within Without Just Well'
)


def split_sentences(text: str) -> list[str]:
    """The sentences of one document, in order, none of them empty.

    Every character other than white space is kept; white space inside a sentence becomes a single
    blank. A sentence longer than `MAX_SENTENCE_CHARACTERS` is cut at blanks.
    """
    sentences = []
    for unit in _units(text.splitlines()):
        start = 0
        for match in _STOP.finditer(unit):
            if match.start() < start:
                continue
            if _is_end(unit, start, match):
                end = _loose_end(unit, match.end())
                sentences.append(unit[start:end])
                start = end + unit.startswith(' ', end)
        if start < len(unit):
            sentences.append(unit[start:])
    if any(len(sentence) > MAX_SENTENCE_CHARACTERS for sentence in sentences):
        return [piece for sentence in sentences for piece in _cut(sentence)]
    return sentences


def _is_end(unit: str, start: int, match: re.Match) -> bool:
    """Whether a sentence that began at `start` ends with the stop that `match` found."""
    position, end = match.span()
    following = _NEXT_WORD.match(unit, end)
    word = following[1] if following else ''
    if unit.startswith(_PUNCTUATION, end + unit.startswith(' ', end)):
        return False
    # In text that does not begin its sentences with capitals a plain stop is all there is.
    if word[:1].islower() and not (unit[start].islower() and match[0] in '.?!'):
        return False
    if match[0][0] != '.' or match[0].startswith('..'):
        return True
    if position - start <= 8 and _ENUMERATOR.fullmatch(unit, start, position):
        return False
    last = unit[max(start, unit.rfind(' ', start, position) + 1) : position]
    return not _is_abbreviation(last.lstrip('"\'“”‘’«„([{—–-_*'), word)


def _is_abbreviation(last: str, word: str) -> bool:
    """Whether `last`, written with a stop, goes on with `word` in the same sentence."""
    lower = last.lower()
    if lower in _TITLES:
        return bool(word)
    if lower in _NUMBERED and word[:1].isdigit():
        return True
    if lower in _EITHER or (last[:1].isalpha() and _ACRONYM.fullmatch(last)):
        return bool(word) and word not in _FIRST_WORDS
    return '\u0531' <= last[-1:] <= '\u0587'  # in Armenian '.' is a pause, ':' or '։' the stop


def _loose_end(unit: str, end: int) -> int:
    """Takes in closing marks that a tokeniser has set apart: `word . " Next`."""
    loose = _LOOSE_CLOSERS.match(unit, end)
    if loose['quote'] and loose.end() < len(unit) and unit.count('"', 0, end) % 2 == 0:
        return loose.start('quote')  # an opening one
    return loose.end()


def _units(lines: list[str]) -> list[str]:
    """Joins hard-wrapped lines; what is left are lines and paragraphs, without blank ones."""
    width = _wrap_width(lines)
    units, unit = [], []
    before = ''
    for line in lines:
        if unit and not (width and _goes_on(before, line, width)):
            units.append(_join(unit))
            unit = []
        before = line
        if line and not line.isspace():
            unit.append(line)
    if unit:
        units.append(_join(unit))
    return units


def _wrap_width(lines: list[str]) -> int:
    """The column at which a document is hard-wrapped; 0 where each line stands for itself.

    In wrapped text nearly every line that has a next one is full (the next word would not have
    fitted) and few lines end in a stop.
    """
    step = 1 + len(lines) // _SAMPLED_LINES
    sample = zip(lines[::step], lines[1::step], strict=False)
    sample = [(line, after) for line, after in sample if line and not line.isspace()]
    if 10 * sum(len(line) > _MAX_WRAP_WIDTH for line, _ in sample) > len(sample):
        return 0
    pairs = [(line, after) for line, after in sample if after and not after.isspace()]
    if not pairs:
        return 0
    lengths = sorted(max(len(line), len(after)) for line, after in pairs)
    width = lengths[int(0.95 * (len(lengths) - 1))]
    if not _MIN_WRAP_WIDTH <= width <= _MAX_WRAP_WIDTH:
        return 0
    full = sum(_is_full(line, after, width) for line, after in pairs)
    stopped = sum(line.rstrip()[-1] in '.!?:' for line, _ in pairs)
    if full < 0.5 * len(pairs) or stopped > 0.5 * len(pairs):
        return 0
    if len(pairs) < 4 and not any(after.lstrip()[0].islower() for _, after in pairs):
        return 0
    return width


def _is_full(line: str, after: str, width: int) -> bool:
    first, _, _ = after.lstrip().partition(' ')
    return len(line.rstrip()) + 1 + len(first) > 0.9 * width


def _goes_on(line: str, after: str, width: int) -> bool:
    """Whether, in text wrapped at `width`, `after` continues the paragraph of `line`."""
    if not line or not after or line.isspace() or after.isspace():
        return False
    if _HEADING.match(line) or _HEADING.match(after) or _BULLET.match(after):
        return False
    lower = after.lstrip()[0].islower()
    indented = after[0].isspace() and not line[0].isspace() and not _LIST_ITEM.match(line)
    if indented and not lower:
        return False
    return _is_full(line, after, width) or (lower and line.rstrip()[-1] not in '.!?:;')


def _join(lines: list[str]) -> str:
    """One line with single blanks; nothing goes between Chinese or Japanese characters."""
    unit = ' '.join(' '.join(lines).split())
    if len(lines) == 1:
        return unit
    unit = re.sub(r'(?<=\w-) (?=\w)', '', unit)
    return re.sub(r'(?<=[\u3000-\u9fff\uff00-\uffef]) (?=[\u3000-\u9fff\uff00-\uffef])', '', unit)


def _cut(sentence: str) -> list[str]:
    pieces = []
    while len(sentence) > MAX_SENTENCE_CHARACTERS:
        blank = sentence.rfind(' ', 1, MAX_SENTENCE_CHARACTERS)
        end = blank if blank > 0 else MAX_SENTENCE_CHARACTERS
        pieces.append(sentence[:end])
        sentence = sentence[end:].lstrip()
    return [*pieces, sentence]
