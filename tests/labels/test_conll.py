"""Reading and building examples from CoNLL and CoNLL-U."""

import pytest

from bert_jax.errors import UserError
from bert_jax.labels.examples import Span, TaggedExample
from tests.labels.reading import read, read_all, write_lines


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


def test_documents_of_conll_2012_begin_and_end_with_a_mark(tmp_path):
    path = write_lines(
        tmp_path / 'a.conll',
        '#begin document (bc/x/0); part 000', 'x 0 0 Anna NNP', 'x 0 1 runs VBZ', '',
        'x 0 0 York NNP', '', '#end document',
        '#begin document (bc/x/0); part 001', 'x 1 0 # SYM', 'x 1 1 4 CD', '', '#end document', ''
    )  # fmt: skip
    columns = {'word': '3', 'tag': '4'}
    settings = dict(train=path, scheme='none')
    found = read_all('tagging', columns, **settings)
    assert [(one.id, one.text) for one in found] == [
        ('a.conll:1', 'Anna runs'),
        ('a.conll:5', 'York'),
        ('a.conll:8', '# 4'),
    ]
    documents = read_all('tagging', columns, **settings, documents=True)
    assert [one.text for one in documents] == ['Anna runs York', '# 4']
    splits = read('tagging', columns, **settings, group='document', dev_fraction=0.5)
    assert sorted(len(split) for split in (splits.train, splits.dev)) == [1, 2]


@pytest.mark.parametrize(('name', 'comment'), [('a.conll', '# '), ('a.conllu', '')])
def test_comments_between_blank_lines_are_no_sentence(name, comment, tmp_path):
    word = '1\ta\ta\tX\t_\t_\t0\troot\t_\t_'
    path = write_lines(tmp_path / name, '# a file', '', '# newdoc id = b', '', word, '', '# end')
    columns = {'tag': 'upos'} if name.endswith('u') else {'tag': '3', 'word': '1'}
    settings = dict(train=path, scheme='none', comment=comment, dev_fraction=0.0)
    (found,) = read('tagging', columns, **settings, documents=True).train
    assert (found.text, found.tags) == ('a', ('X',))


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


@pytest.mark.parametrize(
    ('line', 'message'),
    [
        ('Oslo NNP B-NP', "a.conll:1: line 4, 'Oslo NNP B-NP', has 3 columns instead of 4"),
        ('Oslo NNP B-NP B-LOC x', 'has 5 columns instead of 4'),
        ('Oslo\u00a0x NNP B-LOC', 'has 3 columns instead of 4'),
    ],
)
def test_a_line_with_more_or_fewer_columns_than_the_file_is_malformed(tmp_path, line, message):
    lines = ['Anna NNP B-NP B-PER', 'works VBZ B-VP O', 'in IN B-PP O', line, '. . O O', '']
    path = write_lines(tmp_path / 'a.conll', *lines, 'Bob NNP B-NP B-PER', 'sleeps VBZ B-VP O')
    for scheme in ('bio', 'none'):
        with pytest.raises(UserError, match=f'1 of 2 records are malformed: .*{message}'):
            read('tagging', train=path, scheme=scheme)
        splits = read('spans' if scheme == 'bio' else 'tagging', train=path, scheme=scheme,
                      malformed_fraction=0.5, dev_fraction=0.0)  # fmt: skip
        assert [one.text for one in splits.train] == ['Bob sleeps']
        assert splits.report['malformed'] == 1


def test_sentences_of_semantic_roles_have_a_column_for_each_predicate(tmp_path):
    def sentence(*roles):
        return [' '.join(('d', word, tag, *roles)) for word, tag in (('A', 'DT'), ('b', 'NN'))] + [
            ''
        ]

    lines = [*sentence(), *sentence(), *sentence(), *sentence('*', '(V*)'), *sentence('*', '*')]
    path = write_lines(tmp_path / 'a.conll', *lines, *sentence('*'))
    columns, options = {'word': '1', 'tag': '2'}, {'scheme': 'none', 'malformed_fraction': 0.2}
    splits = read('tagging', columns, train=path, dev_fraction=0.0, **options)
    assert [one.tags for one in splits.train] == [('DT', 'NN')] * 5
    assert splits.report['malformed'] == 1  # a single sentence of 4 columns may be a mistake
    with pytest.raises(UserError, match='has 5 columns instead of 3'):
        read('tagging', columns | {'tag': '-1'}, train=path, **options)


@pytest.mark.parametrize('separator', [' ', '\t', '  '])
@pytest.mark.parametrize(
    'word', ['10\u00a0000', '\u3000', 'a\u3000', '\u00a0b', '\u2028', '\x85x', 'a\u2003b']
)
def test_words_keep_all_characters_but_spaces_and_tabs(tmp_path, separator, word):
    rows = (('Anna', 'B-PER'), (word, 'O'), ('c', 'B-X'))
    path = write_lines(tmp_path / 'a.conll', *(separator.join(row) for row in rows))
    (found,) = read('tagging', train=path, dev_fraction=0.0).train
    assert [found.text[start:end] for start, end in found.words] == ['Anna', word, 'c']
    assert found.tags == ('B-PER', 'O', 'B-X')


def test_lines_with_ids_lead_to_the_setting_that_skips_them(tmp_path):
    sentences = ['# id 4f3a domain=en', 'anna _ _ B-PER', '# _ _ O', '',
                 '# id 77 domain=en', 'bob _ _ B-PER', 'runs _ _ O']  # fmt: skip
    path = write_lines(tmp_path / 'a.conll', *sentences)
    for scheme in ('bio', 'none'):
        with pytest.raises(UserError, match="looks like a comment; set data.comment='# id' to"):
            read('tagging', train=path, scheme=scheme)
    found = read_all('tagging', train=path, comment='# id')
    assert [one.text for one in found] == ['anna #', 'bob runs']
    path = write_lines(tmp_path / 'b.conll', '# sent_id = 3', 'a O', '#b O', '# O')
    with pytest.raises(UserError, match="looks like a comment; set data.comment='# sent_id'"):
        read('tagging', train=path)


def test_an_empty_tag_is_malformed_in_every_scheme(tmp_path):
    path = write_lines(tmp_path / 'a.conll', 'a\tDET', 'b\t', '', 'c\tDET')
    with pytest.raises(UserError, match='1 of 2 .*a.conll:1: line 2 has an empty tag'):
        read('tagging', train=path, scheme='none')
