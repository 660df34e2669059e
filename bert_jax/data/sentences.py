"""Rule-based sentence splitting for all scripts that mark the end of a sentence.

Lines are first joined into units (a hard-wrapped paragraph becomes one unit; a heading, verse or
list item stays one), then each unit is split after its full stops. Measured in
experiments/studies/sentences.
"""

import re

# Text without a full stop (a table, a log) is split at a space before this many characters.
MAX_SENTENCE_CHARACTERS = 1000

# Lines of hard-wrapped text are at most this long; longer lines are whole paragraphs.
_MAX_WRAP_WIDTH = 130
_MIN_WRAP_WIDTH = 30
_SAMPLED_LINES = 4000

_CLOSERS = r'["\'”’“»›)\]}_*]'
# Danda, Urdu, Arabic, Armenian, Ethiopic, Khmer, Burmese and Tibetan full stops and question marks.
_OTHER_STOPS = '\u0964\u0965\u06d4\u061f\u0589\u1362\u1367\u1368\u17d4\u104b\u0f0d'
_STOP = re.compile(
    # White space follows, possibly after quotes, brackets, a footnote or an emoticon. In Armenian a
    # colon often replaces the full stop. Possessive matching tries a run of stops only once.
    rf'(?:(?<![.!?…])[.!?…]++|[{_OTHER_STOPS}]+|(?:(?<=[\u0561-\u0587])|(?<=[\u0561-\u0587]»)):)'
    rf'{_CLOSERS}*+(?:\[\d+\])*(?: [:;]-?[()DP]+)?(?=\s)'
    # In Chinese and Japanese no space follows.
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


# Abbreviations that never end a sentence if a capital letter or a number follows.
_TITLES = _words(
    'mr mrs ms messrs mme mlle dr drs prof rev hon gen col maj capt cpt lt sgt cpl adm cmdr gov '
    'sen rep pres mt ft st ste fr sr sra srta dra ing dipl mag '
    'e.g eg i.e ie viz cf vs ca approx z.b d.h bzw u.a vgl т.е т.к напр ул им'
)
# Abbreviations that do not end a sentence if a number follows.
_NUMBERED = _words(
    'no nos nr ext para vol vols p pp ch chap sec sect fig figs eq eqs art op tab pt par ver v vv '
    'jan feb mar apr jun jul aug sep sept oct nov dec стр рис гл'
)
# Abbreviations, like U.S. and initials, that end a sentence only before a common first word.
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
    """Return the sentences of a document, in order; none is empty.

    All characters except white space are kept; white space in a sentence becomes a single space. A
    sentence longer than `MAX_SENTENCE_CHARACTERS` is split at spaces.
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
        return [piece for sentence in sentences for piece in _split_long(sentence)]
    return sentences


def _is_end(unit: str, start: int, match: re.Match) -> bool:
    """Whether the sentence that starts at `start` ends with the matched stop."""
    position, end = match.span()
    following = _NEXT_WORD.match(unit, end)
    word = following[1] if following else ''
    if unit.startswith(_PUNCTUATION, end + unit.startswith(' ', end)):
        return False
    # A plain stop before a lowercase word counts only if sentences start in lowercase here.
    if word[:1].islower() and not (unit[start].islower() and match[0] in '.?!'):
        return False
    if match[0][0] != '.' or match[0].startswith('..'):
        return True
    if position - start <= 8 and _ENUMERATOR.fullmatch(unit, start, position):
        return False
    last = unit[max(start, unit.rfind(' ', start, position) + 1) : position]
    return not _is_abbreviation(last.lstrip('"\'“”‘’«„([{—–-_*'), word)


def _is_abbreviation(last: str, word: str) -> bool:
    """Whether the stop after `last` belongs to an abbreviation, so that `word` continues it."""
    lower = last.lower()
    if lower in _TITLES:
        return bool(word)
    if lower in _NUMBERED and word[:1].isdigit():
        return True
    if lower in _EITHER or (last[:1].isalpha() and _ACRONYM.fullmatch(last)):
        return bool(word) and word not in _FIRST_WORDS
    return '\u0531' <= last[-1:] <= '\u0587'  # Armenian: '.' is a pause, ':' and '։' are stops


def _loose_end(unit: str, end: int) -> int:
    """End of the closing marks that a tokenizer has set apart, as in `word . " Next`."""
    loose = _LOOSE_CLOSERS.match(unit, end)
    assert loose  # the pattern matches the empty string
    if loose['quote'] and loose.end() < len(unit) and unit.count('"', 0, end) % 2 == 0:
        return loose.start('quote')  # an opening quote
    return loose.end()


def _units(lines: list[str]) -> list[str]:
    """Join hard-wrapped lines into paragraphs; drop blank lines."""
    width = _wrap_width(lines)
    units: list[str] = []
    unit: list[str] = []
    before = ''
    for line in lines:
        if unit and not (width and _continues(before, line, width)):
            units.append(_join(unit))
            unit = []
        before = line
        if line and not line.isspace():
            unit.append(line)
    if unit:
        units.append(_join(unit))
    return units


def _wrap_width(lines: list[str]) -> int:
    """The column at which a document is hard-wrapped; 0 if it is not.

    In wrapped text, nearly every line that is followed by another is full (the next word would not
    have fit) and few lines end in a stop.
    """
    step = 1 + len(lines) // _SAMPLED_LINES
    pairs = zip(lines[::step], lines[1::step], strict=False)
    sample = [(line, after) for line, after in pairs if line and not line.isspace()]
    if 10 * sum(len(line) > _MAX_WRAP_WIDTH for line, _ in sample) > len(sample):
        return 0
    adjacent = [(line, after) for line, after in sample if after and not after.isspace()]
    if not adjacent:
        return 0
    lengths = sorted(max(len(line), len(after)) for line, after in adjacent)
    width = lengths[int(0.95 * (len(lengths) - 1))]
    if not _MIN_WRAP_WIDTH <= width <= _MAX_WRAP_WIDTH:
        return 0
    full = sum(_is_full(line, after, width) for line, after in adjacent)
    stopped = sum(line.rstrip()[-1] in '.!?:' for line, _ in adjacent)
    if full < 0.5 * len(adjacent) or stopped > 0.5 * len(adjacent):
        return 0
    if len(adjacent) < 4 and not any(after.lstrip()[0].islower() for _, after in adjacent):
        return 0
    return width


def _is_full(line: str, after: str, width: int) -> bool:
    first, _, _ = after.lstrip().partition(' ')
    return len(line.rstrip()) + 1 + len(first) > 0.9 * width


def _continues(line: str, after: str, width: int) -> bool:
    """Whether `after` continues the paragraph of `line` in text that is wrapped at `width`."""
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
    """One line with single spaces, and none between Chinese or Japanese characters."""
    unit = ' '.join(' '.join(lines).split())
    if len(lines) == 1:
        return unit
    unit = re.sub(r'(?<=\w-) (?=\w)', '', unit)
    return re.sub(r'(?<=[\u3000-\u9fff\uff00-\uffef]) (?=[\u3000-\u9fff\uff00-\uffef])', '', unit)


def _split_long(sentence: str) -> list[str]:
    pieces = []
    while len(sentence) > MAX_SENTENCE_CHARACTERS:
        space = sentence.rfind(' ', 1, MAX_SENTENCE_CHARACTERS)
        end = space if space > 0 else MAX_SENTENCE_CHARACTERS
        pieces.append(sentence[:end])
        sentence = sentence[end:].lstrip()
    return [*pieces, sentence]
