"""Makes the books of the source `sample` from a collection of public-domain books.

    git clone https://github.com/mlschmitt/classic-books-markdown
    python experiments/sample_books.py classic-books-markdown bert_jax/text/sources/sample_books

Markup, the title page, and sections without text are left out; a paragraph becomes a line.
Spelling stays as it is.
"""

import pathlib
import re
import sys

BOOKS = {
    'alice_in_wonderland': "Lewis Carroll/Alice's Adventures in Wonderland",
    'black_beauty': 'Anna Sewell/Black Beauty',
    'dubliners': 'James Joyce/Dubliners',
    'happy_prince': 'Oscar Wilde/The Happy Prince & Other Tales',
    'little_princess': 'Frances Hodgson Burnett/A Little Princess',
    'moonfleet': 'J. Meade Falkner/Moonfleet',
    'o_pioneers': 'Willa Cather/O Pioneers!',
    'persuasion': 'Jane Austen/Persuasion',
    'princess_and_goblin': 'George MacDonald/The Princess and the Goblin',
    'prisoner_of_zenda': 'Anthony Hope/The Prisoner of Zenda',
    'railway_children': 'Edith Nesbit/The Railway Children',
    'red_badge_of_courage': 'Stephen Crane/The Red Badge of Courage ',
    'ten_days_in_a_mad_house': 'Nellie Bly/Ten Days in a Mad-House',
    'up_from_slavery': 'Booker T. Washington/Up from Slavery',
    'war_of_the_worlds': 'H.G. Wells/War of the Worlds',
    'wind_in_the_willows': 'Kenneth Grahame/The Wind in the Willows',
    'winesburg_ohio': 'Sherwood Anderson/Winesburg, Ohio',
    'wizard_of_oz': 'L. Frank Baum/The Wonderful Wizard of Oz',
}

TEXT_IN_A_HEADING = '"LET DOROTHY GO TO THE CITY OF EMERALDS"'
NO_TEXT = re.compile(r'\W*|(?i:the end|finis)\W*')
EDITS = [
    (r' ?(\[sic\]|\{another ed[^}]*\})', ''),  # notes of editors
    (r'\\-|[_*\\]', ''),  # emphasis and escapes
    (r'-{2,}', '—'),
    (r'\s+', ' '),
    (r'^" (?=\w)|(?<=[.,!?]) "(?= |$)', '"'),
]


def main(source: str, target: str) -> None:
    for name, path in BOOKS.items():
        markdown = (pathlib.Path(source) / f'{path}.md').read_text(encoding='utf-8')
        chapters = convert(markdown)
        text = '\n\n'.join('\n\n'.join([f'# {title}', *body]) for title, body in chapters)
        (pathlib.Path(target) / f'{name}.txt').write_text(text + '\n', encoding='utf-8')


def convert(markdown: str) -> list[tuple[str, list[str]]]:
    """Return the title and the paragraphs of each chapter of a book."""
    _, _, book = markdown.partition('\n-------')
    book = book.replace(f'###  {TEXT_IN_A_HEADING}', TEXT_IN_A_HEADING)
    chapters = []
    part = ''  # title of a part of the book, which has no text before its first chapter
    for section in re.split(r'^#+ ', book, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition('\n')
        paragraphs = [edit(paragraph) for paragraph in re.split(r'\n\s*\n', text)]
        paragraphs = [text for text in paragraphs if not NO_TEXT.fullmatch(text)]
        if paragraphs:
            chapters.append((part + edit(title), paragraphs))
            part = ''
        elif not NO_TEXT.fullmatch(title):
            part = f'{edit(title)}, '
    return chapters


def edit(text: str) -> str:
    """Return a paragraph or title as one line without markup."""
    for pattern, replacement in EDITS:
        text = re.sub(pattern, replacement, text)
    return text.strip()


if __name__ == '__main__':
    main(*sys.argv[1:])
