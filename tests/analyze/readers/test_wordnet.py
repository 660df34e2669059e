"""WordNet's files, written here in its format."""

import pytest

from bert_jax.analyze.readers import wordnet
from bert_jax.errors import UserError

# Two birds and a machine, both 'crane'; a bird is an animal, and Bird Island an instance of it.
INDEX = """\
animal%1:03:00:: 00000010 1 5
bird%1:05:00:: 00000020 1 9
bird_island%1:15:00:: 00000050 1 0
crane%1:05:00:: 00000030 2 1
crane%1:06:00:: 00000040 1 4
crane%2:29:00:: 00000060 1 0
derrick%1:06:00:: 00000040 1 2
stork%1:05:00:: 00000030 1 3
tall%5:00:00:high:00 00000080 1 2
high%3:00:00:: 00000070 1 7
"""
DATA = {
    'noun': """\
00000010 03 n 01 animal 0 001 ~ 00000020 n 0000 | a living thing
00000020 05 n 01 bird 0 001 @ 00000010 n 0000 | it | flies
00000030 05 n 02 stork 0 crane 1 002 @ 00000020 n 0000 + 00000060 v 0201 | a bird
00000040 06 n 02 crane 0 derrick 0 000 | it lifts
00000050 15 n 01 Bird_Island 0 001 @i 00000020 n 0000 | an island
""",
    'verb': '00000060 29 v 01 crane 0 000 01 + 02 00 | to stretch\n',
    'adj': """\
00000070 00 a 01 high 0 001 & 00000080 a 0000 | far up
00000080 00 s 01 tall(p) 0 001 & 00000070 a 0000 | of stature
""",
    'adv': '',
}


def write(folder):
    license_lines = '  1 This software and database is free.  \n  2 \n'
    (folder / 'index.sense').write_text(INDEX)
    for name, text in DATA.items():
        (folder / f'data.{name}').write_text(license_lines + text)
    return str(folder)


def test_senses_synsets_and_hypernyms_are_read(tmp_path):
    net = wordnet.read(write(tmp_path))
    assert net.keys_of['crane', 'NOUN'] == ['crane%1:06:00::', 'crane%1:05:00::']
    assert net.keys_of['tall', 'ADJ'] == ['tall%5:00:00:high:00']
    stork = net.synset_of['stork%1:05:00::']
    assert net.keys_in[stork] == ['crane%1:05:00::', 'stork%1:05:00::']
    assert net.hypernyms[stork] == [net.synset_of['bird%1:05:00::']]
    island = net.synset_of['bird_island%1:15:00::']
    assert net.hypernyms[island] == [net.synset_of['bird%1:05:00::']]
    assert net.file_of[stork] == '05'
    assert net.hypernyms[net.synset_of['tall%5:00:00:high:00']] == []


def test_a_folder_without_wordnet_is_one_line(tmp_path):
    with pytest.raises(UserError, match='index.sense does not exist: is .* a folder of WordNet'):
        wordnet.read(str(tmp_path))


def test_another_file_of_that_name_is_one_line(tmp_path):
    write(tmp_path)
    (tmp_path / 'index.sense').write_text('sense,count\n')
    with pytest.raises(UserError, match="index.sense is not in WordNet format: 'sense,count'"):
        wordnet.read(str(tmp_path))
