"""Texts with senses: both kinds of XML, and JSON lines."""

import gzip

import pytest

from bert_jax.analyze.readers import sense_corpora
from bert_jax.errors import UserError

WORDS = """<?xml version="1.0"?><SimpleWsdDoc name="br-a01">
<word text="The" break_level="NO_BREAK"/>
<word text="banks" lemma="Bank" pos="NOUN" sense="b/1" break_level="SPACE_BREAK"/>
<word text="." break_level="NO_BREAK"/>
<word text="Nothing" break_level="SENTENCE_BREAK"/>
<word text="It" break_level="PARAGRAPH_BREAK"/>
<word text="&#39;s" lemma="be" pos="VERB" sense="be/2" break_level="NO_BREAK"/>
</SimpleWsdDoc>"""
INSTANCES = """<corpus lang="en"><text id="d000">
<sentence id="d000.s000"><wf lemma="the" pos="DET">The</wf>
<instance id="d000.s000.t000" lemma="bank" pos="NOUN">banks</instance></sentence></text>
<text id="d001"><sentence id="d001.s000">
<instance id="d001.s000.t000" lemma="be" pos="VERB">is</instance>
<instance id="d001.s000.t001" lemma="unlabeled" pos="NOUN">x</instance>
</sentence></text></corpus>"""
JSON = (
    '{"words": ["The", "banks"], "document": 7, '
    '"targets": [{"word": 1, "lemma": "bank", "pos": "n", "senses": ["a", "b"]}]}\n'
)


def found(path):
    return [
        (s.document, s.text, [(s.text[slice(*t.span)], *t[1:]) for t in s.targets])
        for s in sense_corpora.read(str(path))
    ]


def test_words_of_a_document(tmp_path):
    with gzip.open(tmp_path / 'a.xml.gz', 'wt') as file:
        file.write(WORDS)
    assert found(tmp_path / 'a.xml.gz') == [
        ('br-a01', 'The banks .', [('banks', 'bank', 'NOUN', ('b/1',))]),
        ('br-a01', "It 's", [("'s", 'be', 'VERB', ('be/2',))]),
    ]


def test_instances_with_gold_keys(tmp_path):
    (tmp_path / 'x.data.xml').write_text(INSTANCES)
    keys = 'd000.s000.t000 bank%1:17:00:: bank%1:17:01::\nd001.s000.t000 be%2:42:03::\n'
    (tmp_path / 'x.gold.key.txt').write_text(keys)
    assert found(tmp_path / 'x.data.xml') == [
        ('d000', 'The banks', [('banks', 'bank', 'NOUN', ('bank%1:17:00::', 'bank%1:17:01::'))]),
        ('d001', 'is x', [('is', 'be', 'VERB', ('be%2:42:03::',))]),
    ]


def test_json_lines(tmp_path):
    (tmp_path / 'x.jsonl').write_text(JSON)
    expected = [('7', 'The banks', [('banks', 'bank', 'NOUN', ('a', 'b'))])]
    assert found(tmp_path / 'x.jsonl') == expected


def test_a_map_has_several_keys_a_sense(tmp_path):
    (tmp_path / 'map').write_text('s1\ta%1:04:00::,a%1:04:01::;rest\ns2\t\n')
    assert sense_corpora.read_map(str(tmp_path / 'map')) == {
        's1': ('a%1:04:00::', 'a%1:04:01::'),
        's2': (),
    }


@pytest.mark.parametrize(
    ('name', 'text', 'error'),
    [
        ('a.xml', '<word', 'is not valid XML'),
        ('a.xml', '<html/>', '<html> is not one of SimpleWsdDoc, corpus'),
        ('a.xml', INSTANCES, 'the name of a <corpus> must end in .data.xml'),
        ('a.jsonl', JSON.replace('"word": 1', '"word": 2'), 'a target is not in its sentence'),
        ('a.jsonl', JSON.replace('"word": 1', '"word": -1'), 'a target is not in its sentence'),
        ('a.jsonl', '{"words": []}', 'line 1: expected {"words", "targets"'),
        ('a.jsonl', '[', 'line 1: expected {"words", "targets"'),
    ],
)
def test_wrong_files_are_one_line(tmp_path, name, text, error):
    (tmp_path / name).write_text(text)
    with pytest.raises(UserError) as raised:
        found(tmp_path / name)
    assert error in str(raised.value)
