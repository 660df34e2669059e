"""Dependency trees from CoNLL-U."""

import pytest

from bert_jax.analyze.readers import treebank
from bert_jax.errors import UserError

TEXT = """\
# newdoc id = a
1\tWe\twe\tPRON\tPRP\t_\t2\tnsubj\t_\t_
2\tsail\tsail\tVERB\tVBP\t_\t0\troot\t_\t_
3\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_

# newdoc id = b
1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tdo\tdo\tAUX\tVB\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_
3.1\tx\t_\t_\t_\t_\t_\t_\t_\t_
"""


def test_words_tags_and_heads_of_documents(tmp_path):
    (tmp_path / 'a.conllu').write_text(TEXT)
    first, second = treebank.read([str(tmp_path / '*.conllu')])
    assert (first.document, second.document) == (0, 1)
    assert second.text == "do n't go"
    assert [second.text[slice(*word)] for word in second.words] == ['do', "n't", 'go']
    assert first.heads == (1, -1, 1)
    assert first.tags['deprel'] == ('nsubj', 'root', 'punct')
    assert first.is_punctuation == [False, False, True]
    assert len(treebank.read([str(tmp_path / 'a.conllu')], limit=1)) == 1


@pytest.mark.parametrize(
    ('text', 'error'),
    [
        ('', 'has no sentence'),
        ('We sail\n', 'line 1 is not CoNLL-U: 1 columns'),
        (TEXT.replace('VBP\t_\t0', 'VBP\t_\t_'), 'has a word without a head'),
        (TEXT.replace('VBP\t_\t0', 'VBP\t_\t9'), 'has a head that is not one of its words'),
    ],
)
def test_wrong_files_are_one_line(tmp_path, text, error):
    (tmp_path / 'a.conllu').write_text(text)
    with pytest.raises(UserError) as raised:
        treebank.read([str(tmp_path / 'a.conllu')])
    assert error in str(raised.value)
