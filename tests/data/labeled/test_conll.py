"""Reading and building examples from CoNLL and CoNLL-U."""

import pytest

from bert_jax.data.labeled.examples import (
    Span,
    TaggedExample,
)
from bert_jax.errors import UserError
from tests.data.labeled.reading import read, read_all, write_lines


def test_conll_sentences_or_documents_in_any_scheme(tmp_path):
    path = write_lines(
        tmp_path / 'a.conll',
        '-DOCSTART- -X- O O', '', 'EU NNP I-NP I-ORG', 'rejects VBZ I-VP O',
        'German JJ I-NP I-MISC', 'French JJ I-NP B-MISC', '', 'York NNP I-NP I-LOC', '',
        '-DOCSTART- -X- O O', '', 'Peter NNP I-NP I-PER', ''
    )  # fmt: skip
    found = read_all('tagging', train=path, format='conll', scheme='iob1')
    found.sort(key=lambda one: len(one.text), reverse=True)
    assert found[0] == TaggedExample(
        'a.conll:3',
        'EU rejects German French',
        ((0, 2), (3, 10), (11, 17), (18, 24)),
        ('B-ORG', 'O', 'B-MISC', 'B-MISC'),
    )
    assert [one.text for one in found[1:]] == ['Peter', 'York']
    settings = dict(train=path, format='conll', scheme='iob1', tags_as='bioes', documents=True)
    found = read_all('tagging', **settings)
    assert sorted(one.text for one in found) == ['EU rejects German French York', 'Peter']
    assert {one.tags for one in found} == {
        ('S-ORG', 'O', 'S-MISC', 'S-MISC', 'S-LOC'),
        ('S-PER',),
    }
    found = read_all('tagging', {'tag': '1'}, train=path, format='conll', scheme='none')
    assert ('NNP', 'VBZ', 'JJ', 'JJ') in {one.tags for one in found}


def test_conll_repairs_tags_skips_comments_and_yields_spans(tmp_path):
    path = write_lines(
        tmp_path / 'a.conll', '# id 1\tx', 'a b\tI-X', 'c\tI-Y', '', '# id 2', '#\tO', 'd\tB-X'
    )
    splits = read('tagging', train=path, format='conll', comment='# id', dev_fraction=0.5)
    found = sorted(splits.train + splits.dev)
    assert [one.tags for one in found] == [('B-X', 'B-Y'), ('O', 'B-X')]
    assert found[0].words == ((0, 3), (4, 5))
    assert splits.report['repaired_tags'] == 2
    found = read_all('spans', train=path, format='conll', comment='# id')
    assert [one.spans for one in found] == [
        (Span(0, 3, 'X'), Span(4, 5, 'Y')),
        (Span(2, 3, 'X'),),
    ]


@pytest.mark.parametrize('tag', ['S-PER', 'PER', 'b-PER', 'B-', '-'])
def test_a_prefix_that_the_scheme_lacks_is_an_error(tmp_path, tag):
    path = write_lines(tmp_path / 'a.conll', 'a O', '', 'b O', f'c {tag}')
    with pytest.raises(
        UserError, match=rf"a.conll:3: tag '{tag}' is not valid in data.scheme='bio'"
    ):
        read('tagging', train=path, format='conll')


def test_only_test_files_may_lack_tags(tmp_path):
    train = write_lines(tmp_path / 'a.conll', 'a O', '', 'b O')
    test = write_lines(tmp_path / 'b.conll', 'a', 'b', '')
    splits = read('tagging', train=train, dev=train, test=test, format='conll')
    assert splits.test == [TaggedExample('b.conll:1', 'a b', ((0, 1), (2, 3)), None)]
    with pytest.raises(UserError, match=r"b.conll:1: only one column in 'a'"):
        read('tagging', train=test, format='conll')


CONLLU = """\
# newdoc id = d1
# sent_id = s1
# text = Don't go  du coup.
1-2	Don't	_	_	_	_	_	_	_	_
1	Do	do	AUX	VB	Number=Sing|Mood=Imp	_	_	_	_
2	n't	not	PART	RB	_	_	_	_	_
3	go	go	VERB	VB	_	_	_	_	_
3.1	there	there	ADV	RB	_	_	_	_	_
4-5	du	_	_	_	_	_	_	_	_
4	de	de	ADP	IN	_	_	_	_	_
5	le	le	DET	DT	_	_	_	_	_
6	coup	coup	NOUN	NN	Number=Sing	_	_	_	SpaceAfter=No
7	.	.	PUNCT	.	_	_	_	_	_

# sent_id = s2
# text = Something else.
1	New	new	ADJ	JJ	_	_	_	_	SpaceAfter=No
2	s	s	NOUN	NN	_	_	_	_	_

"""


def test_conllu_aligns_words_to_the_stated_text(tmp_path):
    path = write_lines(tmp_path / 'a.conllu', CONLLU)
    settings = dict(train=path, format='conllu', scheme='none', dev_fraction=0.5)
    splits = read('tagging', {'tag': 'upos'}, **settings)
    first, second = sorted(splits.train + splits.dev)
    assert (first.id, second.id) == ('s1', 's2')
    assert first.text == "Don't go  du coup."
    words = [first.text[start:end] for start, end in first.words]
    assert words == ['Do', "n't", 'go', 'du', 'coup', '.']
    assert first.tags == ('AUX', 'PART', 'VERB', 'ADP+DET', 'NOUN', 'PUNCT')
    assert second.text == 'News'
    assert second.words == ((0, 3), (3, 4))
    for name in ('empty_nodes', 'multiword_tokens_kept_whole', 'texts_made_of_words'):
        assert splits.report[name] == 1
    found = read_all('tagging', {'tag': 'feats.Number'}, **settings)
    assert found[0].tags == ('Sing', '_', '_', '_+_', 'Sing', '_')
    with pytest.raises(
        UserError,
        match=r"data.columns.tag names column 'pos', but .* has columns id, form, lemma, upos",
    ):
        read('tagging', {'tag': 'pos'}, **settings)


def test_conllu_documents_stay_together_or_are_one_example(tmp_path):
    other = CONLLU.replace('d1', 'd2').replace('\tgo\t', '\tsit\t').replace('go ', 'sit ')
    path = write_lines(tmp_path / 'a.conllu', CONLLU, other.replace('New\t', 'Old\t'))
    settings = dict(train=path, format='conllu', scheme='none', dev_fraction=0.5)
    splits = read('tagging', {'tag': 'xpos'}, documents=True, **settings)
    assert len(splits.train) == len(splits.dev) == 1
    one, other = sorted(splits.train + splits.dev)
    assert (one.id, other.id) == ('d1', 'd2')
    assert one.text == "Don't go  du coup. News"
    words = [one.text[start:end] for start, end in one.words]
    assert words == ['Do', "n't", 'go', 'du', 'coup', '.', 'New', 's']
    splits = read('tagging', {'tag': 'xpos'}, group='document', **settings)
    assert [one.id for one in splits.train] == [one.id for one in splits.dev] == ['s1', 's2']
