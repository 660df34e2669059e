"""Sentence splitting in several scripts, with and without hard-wrapped lines."""

import textwrap
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.data.sentences import MAX_SENTENCE_CHARACTERS, split_sentences
from experiments.studies.sentences import evaluate

# '|' marks the expected boundaries.
MARKED = {
    'plain': 'It rained.| We stayed in.| Why not?| Because!',
    'titles': 'Mr. Brown met Dr. Jones and Mrs. St. John.| They left.',
    'latin abbreviations': 'Fruit, e.g. Apples, i.e. Pomes, is cheap.| Others, cf. Pears, not.',
    'numbered': 'See No. 5 and vol. 2, pp. 3-4, of Fig. 1.| He said no.| We left.',
    'acronym inside': 'The U.S. Navy came to Washington D.C. Tuesday.',
    'acronym last': 'He lives in the U.S.| He likes it.',
    'initials': 'J. R. R. Tolkien and H. G. Wells wrote.| I read.',
    'pronoun': 'So do I.| He does not.',
    'company': 'Acme Inc. Chairman Smith resigned.| He joined Foo Ltd.| The end.',
    'months': 'On Jan. 5 we met.| On Sept. 11 we left.',
    'decimals': 'It costs 3.50 or 1.000.000.| Version 2.1.3 is out.',
    'enumeration': '1. First we cook.| 2. Then we eat.',
    'ellipsis': 'He paused... then went on.| And then...| Nothing happened.',
    'spaced ellipsis': 'He waited . . . and waited.| Then left.',
    'quotes': '"Go!" she said.| "Why?" he asked.| “Because.”| ‘I see.’',
    'brackets': 'It works.| (It did not before.)| Now it does [see above].| Good.',
    'exclamations': 'What?!| No!!!| Fine.',
    'footnote': 'It was built in 1900.[12]| It burnt down.',
    'emoticon': 'I love it! :)| You will too.',
    'lower case writing': 'are you coming?| i will wait.| call me etc. and so on.',
    'set apart': 'He said , " It is late . "| Then he left .| ( So did I . )| " Yes " was all .',
    'cyrillic': 'Он ушёл.| Она осталась, т.е. ждала.| А. С. Пушкин писал!| Почему?',
    'german': 'Sie kam z.B. Montag.| „Gut.“| Danach ging sie.',
    'greek': 'Ήρθε χθες.| Έφυγε σήμερα.',
    'armenian': 'Նա եկաւ։| Եւ գնաց։',
    'armenian with colons': 'Եւ Աստուած ասաց. «Թող լոյս լինի»:| Եւ լոյս եղաւ:',
    'hindi': 'वह आया।| वह गया।| क्या हुआ?',
    'gujarati': 'તે આવ્યો.| તે ગયો.',
    'urdu': 'وہ آیا۔| وہ گیا۔| کیوں؟| کیونکہ۔',
    'amharic': 'እሱ መጣ።| እሷ ሄደች።',
    'chinese': '他说：“你好。”|我走了。|真的吗？|是的！|完',
    'japanese': '彼は来た。|「行こう。」|彼女は言った。',
}


@pytest.mark.parametrize('kind', MARKED)
def test_boundaries(kind):
    marked = MARKED[kind]
    assert split_sentences(marked.replace('|', '')) == [s.strip() for s in marked.split('|')]


PROSE = (
    'The ship had been three days out of port when the wind began to rise. Nobody on board thought '
    'much of it, for the season was young and the captain an old hand. By nightfall, however, the '
    'waves stood as high as the rail. Mr. Hale went below to look at the pumps, and what he found '
    'there made him run back up the stairs without his lantern.'
)
SENTENCES = [
    'The ship had been three days out of port when the wind began to rise.',
    'Nobody on board thought much of it, for the season was young and the captain an old hand.',
    'By nightfall, however, the waves stood as high as the rail.',
    'Mr. Hale went below to look at the pumps, and what he found there made him run back up the '
    'stairs without his lantern.',
]


@pytest.mark.parametrize('newline', ['\n', '\r\n', '\r'])
@pytest.mark.parametrize('width', [50, 72, 100])
def test_hard_wrapped_paragraphs_are_joined(width, newline):
    text = '\n\n'.join([textwrap.fill(PROSE, width)] * 2).replace('\n', newline)
    assert split_sentences(text) == SENTENCES * 2


def test_wrapping_does_not_change_the_sentences_of_a_paragraph():
    assert split_sentences(PROSE + '\n' + PROSE) == SENTENCES * 2


def test_short_lines_between_paragraphs_are_not_joined():
    verse = 'The sea is wide and it is deep and dark\nthe sea is cold and no one there can\nhear'
    text = '\n\n'.join([PROSE, PROSE, verse, PROSE])
    assert split_sentences(text) == [*SENTENCES * 2, *verse.split('\n'), *SENTENCES]


def test_titles_and_verse_in_a_wrapped_document_are_not_joined():
    wrapped = textwrap.fill(PROSE, 70)
    text = f'CHAPTER I\nThe Storm\n\n{wrapped}\n\nThe sea is wide,\nThe sea is deep,\n\n{wrapped}'
    assert split_sentences(text) == [
        *('CHAPTER I', 'The Storm'),
        *SENTENCES,
        *('The sea is wide,', 'The sea is deep,'),
        *SENTENCES,
    ]


def test_a_title_above_a_wrapped_paragraph_is_not_joined_to_it():
    text = '\n\n'.join(f'The Storm\n{textwrap.fill(PROSE, 70)}' for _ in range(3))
    assert split_sentences(text) == ['The Storm', *SENTENCES] * 3


def test_indented_paragraphs_without_blank_lines():
    paragraph = textwrap.fill(PROSE, 70, initial_indent='    ')
    assert split_sentences('\n'.join([paragraph] * 3)) == SENTENCES * 3


def test_one_verse_per_line():
    lines = [
        'And it came to pass in those days, that a decree went out;',
        'and all went to be taxed, every one into his own city, as it had been commanded of them.',
        'And she brought forth a son. They were glad',
    ]
    *whole, last = lines
    assert split_sentences('\n'.join(lines)) == [
        *whole,
        'And she brought forth a son.',
        'They were glad',
    ]


def test_list_items_and_headings_are_not_joined():
    text = ' = Birds = \n\n Birds fly . They sing . \n = = Food = = \n They eat'
    assert split_sentences(text) == [
        *('= Birds =', 'Birds fly .', 'They sing .', '= = Food = =', 'They eat'),
    ]
    wrapped = textwrap.fill(PROSE, 70)
    items = '- a lantern that had been filled with oil on the very same morning\n- a rope\n- an axe'
    assert split_sentences(f'{wrapped}\n\n{items}') == SENTENCES + items.split('\n')


def test_a_hyphen_at_the_end_of_a_wrapped_line_is_kept_without_a_space():
    text = textwrap.fill(PROSE, 70).replace('lantern', 'well-\nknown lantern')
    assert 'his well-known lantern.' in ' '.join(split_sentences(text))


def test_text_without_stops_is_split_at_spaces():
    text = 'word ' * 1000
    sentences = split_sentences(text)
    assert len(sentences) == 5
    assert max(map(len, sentences)) <= MAX_SENTENCE_CHARACTERS
    assert ' '.join(sentences).split() == text.split()
    assert list(map(len, split_sentences('x' * 2500))) == [1000, 1000, 500]


def test_long_runs_of_stops_take_linear_time():
    start = time.process_time()
    assert len(split_sentences('.' * 300_000 + 'x')) == 301
    assert len(split_sentences('a.' * 150_000)) == 300
    assert time.process_time() - start < 5


def test_empty_text_has_no_sentences():
    assert split_sentences('') == split_sentences(' \n\n\t\n') == []


@given(st.text(alphabet='abcXYZ .!?…"\')(:-\n\r\t。।1é\u0301\x85'))
def test_only_white_space_is_lost(text):
    sentences = split_sentences(text)
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)
    assert ''.join(''.join(sentences).split()) == ''.join(text.split())


CONLLU = """\
# newdoc id = a
# newpar id = a-1
# text = It rained.
1\tIt\t_
# text = We stayed in and waited for Mr.
# text = Brown came.
# newpar id = a-2
# text = no stop here
# text = Then it cleared.
# newdoc id = b
# text = The end.
"""


def test_evaluation_counts_boundaries(tmp_path, capsys):
    path = tmp_path / 'a.conllu'
    path.write_text(CONLLU)
    documents = evaluate.read_documents(str(path))
    assert [list(map(len, document)) for document in documents] == [[3, 2], [1]]
    evaluate.evaluate(documents, 5)
    printed = capsys.readouterr().out
    # Three of the six boundaries end a paragraph; one of the other three is found.
    assert 'precision 1.000  recall 0.667  F1 0.800  of 6 boundaries' in printed
    assert 'precision 1.000  recall 0.333  F1 0.500  of 3 boundaries' in printed
    assert 'precision 1.000  recall 0.500  F1 0.667  of 2 boundaries' in printed
    assert 'Browncame.nostophere | Thenitcleared.' in printed


def test_real_boundaries(real_data, capsys):
    path = real_data / 'ud_english_ewt' / 'en_ewt-ud-dev.conllu'
    evaluate.evaluate(evaluate.read_documents(str(path)))
    lines = capsys.readouterr().out.splitlines()[1:]
    f1 = [float(line.split('F1')[1].split()[0]) for line in lines]
    assert f1[0] > 0.92
    assert f1[1] > 0.87
    assert f1[2] > 0.96


def test_novels_and_speed(real_data):
    path = real_data / 'english_novels' / 'Dickens_Expectations_1861.txt'
    text = path.read_text(encoding='utf-8-sig')
    start = time.process_time()
    sentences = split_sentences(text)
    seconds = time.process_time() - start
    assert len(text) / seconds > 2e6  # 13e6 on an idle core
    joined = sum(sentence[0].islower() for sentence in sentences)
    assert 8000 < len(sentences) < 11000
    assert joined < 0.005 * len(sentences)
    assert max(map(len, sentences)) <= MAX_SENTENCE_CHARACTERS
