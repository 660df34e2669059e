"""Character classes of scripts, written as the inside of a regular expression's brackets."""

import re

# Scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, Tai Le, New Tai Lue,
# Tai Tham, Balinese, Javanese, Chinese, Japanese, Bopomofo and Yi, with their punctuation.
UNSPACED = (
    '\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f'
    '\u2e80-\u312f\u31a0-\ua4cf\ua980-\ua9ff\uaa60-\uaa7f\uf900-\ufaff\uff00-\uffef'
    '\U0001b000-\U0001b16f\U00020000-\U000323af'
)
# Korean has spaces, but particles are attached to words.
HANGUL = '\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff'

# A character of these scripts with its vowel signs, accents and subscripts.
CHARACTER = rf'[{UNSPACED}{HANGUL}](?:[^\w\s\u200b]|(?<=[\u1039\u17d2])\w)*'

# Marks that always end a sentence: Armenian, Arabic, Urdu, Syriac, Devanagari (and most scripts of
# India), Burmese, Ethiopic, Khmer, Mongolian, Balinese, Ol Chiki, Chinese, Javanese, Meetei and the
# full-width forms (from the Unicode property Sentence_Terminal).
STOPS = (
    '\u0589\u061d-\u061f\u06d4\u0700-\u0702\u0964\u0965\u104b\u1362\u1367\u1368\u17d4\u17d5'
    '\u1803\u1809\u1b5a\u1b5b\u1b5f\u1c7e\u1c7f\u203c\u203d\u2047-\u2049\u3002\ua8ce\ua8cf'
    '\ua9c9\uabeb\ufe52\ufe56\ufe57\uff01\uff0e\uff1f\uff61'
)
_SURROGATE = re.compile('[\ud800-\udfff]')


def has_surrogates(text: str) -> bool:
    """Whether a text holds undecodable bytes (`text_files.open_text`) or lone surrogates."""
    return not text.isascii() and bool(_SURROGATE.search(text))


def replace_surrogates(text: str) -> tuple[str, int]:
    """Replace each surrogate by U+FFFD; return the text and the number of replacements."""
    return _SURROGATE.subn('\ufffd', text) if has_surrogates(text) else (text, 0)
