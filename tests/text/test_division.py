"""Long files are divided, so that the asked share of the text is held out."""

import random

import pytest

from bert_jax.corpus import preparation
from bert_jax.errors import UserError
from bert_jax.text import division
from bert_jax.text.sources import open_source

PARAGRAPHS = 400
SETTINGS = {'tokenizer': 'train:wordpiece:200', 'held_out_fraction': 0.05, 'workers': 0}


def write_novels(folder, number, between='\n\n', paragraphs=PARAGRAPHS):
    """Write files of about 1,000 characters for each paragraph, and return the source."""
    draw = random.Random(number)
    words = [f'w{i}' for i in range(300)]
    for i in range(number):
        parts = [' '.join(draw.choices(words, k=260)).capitalize() + '.' for _ in range(paragraphs)]
        (folder / f'{i}.txt').write_text(between.join(parts))
    return f'text:{folder}/*.txt'


def held_out_share(made):
    held_out, train = (made.split(name).num_tokens for name in ('held_out', 'train'))
    return held_out / (held_out + train)


@pytest.mark.parametrize('number', [1, 2, 4])
@pytest.mark.parametrize('between', ['\n\n', '\n'])
def test_few_novels_have_the_asked_share(number, between, tmp_path, capsys):
    spec = write_novels(tmp_path, number, between)
    made = preparation.prepare([spec], output=tmp_path / 'out', **SETTINGS)
    assert 0.025 <= held_out_share(made) <= 0.1
    assert f'{number} file(s) are longer than the share to hold out' in capsys.readouterr().out
    assert ';longest=' in made.manifest['sources'][0]['spec']
    again = preparation.prepare([spec], output=tmp_path / 'out', **SETTINGS)
    assert again.manifest == made.manifest


def test_novels_that_cannot_be_divided_stop_the_run_with_one_line(tmp_path):
    spec = write_novels(tmp_path, 4, between=' ')
    expected = r'tokens would be held out instead of 5.0%.*documents=.*held_out_fraction=0.\d'
    with pytest.raises(UserError, match=expected) as caught:
        preparation.prepare([spec], output=tmp_path / 'out', **SETTINGS)
    assert '\n' not in str(caught.value)
    share = float(str(caught.value).rpartition('held_out_fraction=')[2])
    made = preparation.prepare(
        [spec], output=tmp_path / 'more', **SETTINGS | {'held_out_fraction': share}
    )
    assert share / 2 <= held_out_share(made) <= 2 * share


@pytest.mark.parametrize(
    ('files', 'options'),
    [
        ([30_000] * 40, ''),  # short files
        ([30_000] * 40 + [200_000], ''),  # a long one among them is not held out
        ([300_000] * 4, ';held_out_by=file'),
        ([300_000] * 4, ';documents=blank_line'),
        ([300_000] * 4, ';longest=100000'),
        ([9_000] * 4, ''),  # too short to divide
    ],
)
def test_what_is_not_divided(files, options, tmp_path, capsys):
    for number, size in enumerate(files):
        (tmp_path / f'{number}.txt').write_text('word ' * (size // 5))
    source = open_source(f'text:{tmp_path}/*.txt{options}')
    assert division.divide_long_files([source], 0.05) == [source]
    assert not capsys.readouterr().out


@pytest.mark.parametrize('value', ['0', '-1', 'ten', '99999999'])
def test_a_length_that_is_not_valid_is_refused(value, tmp_path):
    (tmp_path / 'a.txt').write_text('A text.')
    with pytest.raises(UserError, match=f'longest={value!r} is not a number of characters'):
        open_source(f'text:{tmp_path}/a.txt;longest={value}')
