"""Constituency trees in brackets: reading, writing and bad files."""

import random

import pytest

from bert_jax.errors import UserError
from bert_jax.labels import trees
from bert_jax.labels.trees import Tree
from tests.labels.reading import read_all, write_lines
from tests.metrics.test_brackets import drawn_pairs

TREE = """( (S (NP-SBJ-1 (NNP Anna) )
   (VP (VBD said)
     (SBAR (-NONE- 0) (S (NP-SBJ (-NONE- *-1))
       (VP (VBD sat) (-LRB- -LRB-) (RB here) (-RRB- -RRB-)))))
   (. .) ))"""


def test_a_tree_has_words_and_chains_of_labels_without_traces_and_functions():
    tree = trees.parse(TREE)
    assert tree.words == ['Anna', 'said', 'sat', '(', 'here', ')', '.']
    assert tree.constituents == [
        (0, 7, 'S'),
        (0, 1, 'NP NNP'),
        (1, 6, 'VP'),
        (1, 2, 'VBD'),
        (2, 6, 'SBAR S VP'),
        (2, 3, 'VBD'),
        (3, 4, '-LRB-'),
        (4, 5, 'RB'),
        (5, 6, '-RRB-'),
        (6, 7, '.'),
    ]
    text = trees.to_text(tree)
    assert text.startswith('(TOP (S (NP (NNP Anna)) (VP (VBD said) (SBAR (S (VP (VBD sat)')
    assert '(-LRB- -LRB-)' in text
    assert trees.parse(text) == tree


def test_500_drawn_trees_survive_writing_and_reading():
    for text, _ in drawn_pairs(random.Random(1), 500):
        tree = trees.parse(text)
        assert trees.to_text(tree) == text
        assert trees.parse(trees.to_text(tree)) == tree


def test_files_have_trees_of_one_or_several_lines(tmp_path):
    path = write_lines(tmp_path / 'a.mrg', TREE, '', '(ROOT (NP (NN dog)))', '(NP (NN cat))')
    found = read_all('constituency', train=path)
    assert [one.text for one in found] == ['Anna said sat ( here ) .', 'dog', 'cat']
    assert [one.id for one in found] == ['a.mrg:1', 'a.mrg:7', 'a.mrg:8']
    assert found[0].spans[1].label == 'NP NNP'
    assert found[1].spans == found[2].spans


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('(S (NP (NN a))', '1 brackets do not close'),
        ('(S (NN a)))', 'a bracket closes that was not opened'),
        ('(S (NN a) b)', "'b' is not in brackets with its tag"),
        ('(S (NN a b))', "'a' is not in brackets with its tag"),
        ('word', "'word' is not in brackets"),
        ('(S (NP (-NONE- *)))', 'the tree has no words'),
        ('()', 'the tree has no words'),
    ],
)
def test_what_is_not_a_tree_is_one_line(tmp_path, text, message):
    path = write_lines(tmp_path / 'a.mrg', text)
    with pytest.raises(UserError, match='1 of 1 records are malformed') as caught:
        read_all('constituency', train=path)
    assert message in str(caught.value)


def test_words_without_a_tag_have_an_unknown_one_and_crossing_brackets_are_refused():
    assert trees.to_text(Tree(['a', 'b'], [(0, 2, 'S')])) == '(TOP (S (X a) (X b)))'
    with pytest.raises(UserError, match='crosses another'):
        trees.to_text(Tree(['a', 'b', 'c'], [(0, 2, 'NP'), (1, 3, 'VP')]))


def test_deep_trees_are_read_without_recursion():
    text = '(S ' * 20_000 + '(NN a)' + ')' * 20_000
    assert len(trees.parse(text).constituents) == 1
