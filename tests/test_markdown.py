"""Names and texts of others are shown as they are, by the rules of CommonMark and of GitHub."""

import pytest

from bert_jax import markdown

NASTY = [
    '**bold** and _this_',
    '`code`',
    'a | b',
    '<img src=x onerror=alert(1)>',
    '[click](javascript:alert(1))',
    '![x](http://tracker/x.png)',
    '# heading',
    '1. list',
    'two\nlines',
    'snake_case_label',
    '\\',
    '~~gone~~',
    '``',
]


def rendered(text: str) -> str:
    """The text that a reader sees in the cell of a table."""
    parser = pytest.importorskip('markdown_it').MarkdownIt('commonmark').enable('table')
    page = parser.enable('strikethrough').render(f'| a | b |\n|---|---|\n| {text} | end |\n')
    tokens = parser.parse(f'| a | b |\n|---|---|\n| {text} | end |\n')
    assert '<td>end</td>' in page  # the row has two cells
    cells = [token for token in tokens if token.type == 'inline']
    children = cells[2].children
    assert all(child.type in ('text', 'text_special', 'code_inline') for child in children)
    return ''.join(child.content for child in children)


@pytest.mark.parametrize('text', NASTY)
def test_a_cell_shows_the_text_itself(text):
    shown = ' '.join(text.splitlines())
    assert rendered(markdown.escape(text)) == shown
    assert rendered(markdown.code(text)) == shown


def test_a_header_can_be_split_off():
    page = markdown.header({'license': 'mit', 'model-index': [{'name': 'ü: x'}]}) + '# Title\n'
    header, rest = markdown.split_header(page)
    assert rest == '# Title\n'
    assert header.splitlines() == ['license: "mit"', 'model-index: [{"name": "ü: x"}]']
    assert markdown.split_header(rest) == ('', rest)
