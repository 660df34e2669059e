"""Texts that are difficult for tokenizers, named by their difficulty."""

ODD = {
    'empty': '',
    'blanks': ' \t\n\r  \u00a0\u2003\u3000 ',
    'accents': 'Café naïve ÀÉÎÕÜ ﬁn ß ẞ İstanbul ǅ',
    'decomposed': 'cafe\u0301 Ω\u0304',
    'chinese': '北京大學abc東京タワー 한국어 𠀀𠀁',
    'emoji': 'x😀y 👩‍👩‍👧‍👦 👍🏽 🇫🇷 ❤️ ☎',
    'controls': 'a\x00b\x01c\x7fd\x1fe\u200bf\ufeffg\ufffdh\x85i\u2028j\u00adk',
    'long word': 'a' * 200 + ' ' + 'b' * 100 + ' ' + 'c' * 201,
    'joiners': 'नमस्ते क्\u200dष می\u200cخواهم',
    'right to left': 'שָׁלוֹם עולם السَّلامُ عليكم \u202babc\u202c',
    'tabs and newlines': 'the\tof\nand\r\nto\x0bin\x0ca',
    'punctuation': "don't ... a--b $12.345% «the» “of” ™°² [un]affable_s \\/`~^",
    'specials': 'a [MASK] b[SEP]c [CLS][PAD] [UNK] [mask] [ MASK ]',
    'private and unassigned': 'a\ue000b\U000e0001c\u0378d',
    'combining first': '\u0301a \u0308 b\u0301\u0323c',
    'numbers': '12345 1,234.5 ⅷ ② ٣٤',
}
