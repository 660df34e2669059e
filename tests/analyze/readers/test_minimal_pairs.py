"""Minimal pairs are read by named columns and sampled by paradigm; mirrored ones are found."""

import json

import pytest

from bert_jax.analyze.readers import minimal_pairs
from bert_jax.analyze.readers.minimal_pairs import MinimalPair
from bert_jax.errors import UserError


def write(path, pairs, paradigm):
    keys = ('sentence_good', 'sentence_bad', 'linguistics_term', 'UID')
    rows = [dict(zip(keys, (*pair, 'gaps', paradigm), strict=True)) for pair in pairs]
    path.write_text('\n'.join(map(json.dumps, rows)))


def test_pairs_are_sampled_evenly_from_each_paradigm(tmp_path):
    write(tmp_path / 'a.jsonl', [(f'good {i}', f'bad {i}') for i in range(9)], 'a')
    write(tmp_path / 'b.jsonl', [('x', 'y')], 'b')
    pairs = minimal_pairs.sample(minimal_pairs.read([f'{tmp_path}/*.jsonl']), 3)
    assert [pair.good for pair in pairs] == ['good 0', 'good 4', 'good 8', 'x']
    assert pairs[-1] == MinimalPair('x', 'y', 'gaps', 'b')
    assert len(minimal_pairs.read([f'{tmp_path}/*.jsonl'])) == 10


def test_columns_can_be_named_and_files_need_no_phenomena(tmp_path):
    path = tmp_path / 'pairs.tsv'
    path.write_text('yes\tno\nthe cats sleep\tthe cats sleeps\n')
    (pair,) = minimal_pairs.read([str(path)], ['good=yes', 'bad=no'])
    assert pair == MinimalPair('the cats sleep', 'the cats sleeps', 'all pairs', 'all pairs')


@pytest.mark.parametrize(
    ('text', 'changes', 'error'),
    [
        ('', (), 'has no rows'),
        ('a\tb\n1\t2\n', (), "no column 'sentence_good'; .*--columns good=COLUMN"),
        ('a\tb\n1\t2\n', ('good=a', 'bad=c'), "no column 'c'; .*--columns bad=COLUMN"),
        ('a\tb\n1\t2\n', ('better=a',), "unknown field of --columns 'better'; known: bad, good"),
        ('a\tb\n1\t2\n', ('good',), "'good' is not FIELD=COLUMN"),
        ('a\tb\n1\t \n', ('good=a', 'bad=b'), 'pairs.tsv:2: a sentence of the pair is empty'),
        ('a\tb\n1\t2\t3\n', ('good=a', 'bad=b'), 'pairs.tsv:2: 3 columns instead of 2'),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path, text, changes, error):
    (tmp_path / 'pairs.tsv').write_text(text)
    with pytest.raises(UserError, match=error):
        minimal_pairs.read([f'{tmp_path}/pairs.tsv'], changes)


def test_paradigms_with_the_same_words_exchanged_are_mirrored():
    def paradigm(name, good, bad):
        return [MinimalPair(f'I know {good} {n}', f'I know {bad} {n}', 'p', name) for n in 'xyz']

    either_way = paradigm('d', 'this', 'these') + paradigm('d', 'these', 'this')
    pairs = [*paradigm('a', 'that', 'who'), *paradigm('b', 'who', 'that'), *either_way]
    pairs += [*paradigm('c', 'that', 'who'), MinimalPair('a b', 'b a', 'p', 'order')]
    assert list(minimal_pairs.mirrored(pairs)) == [('a', 'b'), ('b', 'c')]
