"""Accuracies of heads equal those of a loop over the attentions of transformers."""

import json

import numpy as np
import pytest
import torch
import transformers

from bert_jax.analyze import __main__ as command
from bert_jax.analyze.readers import treebank
from tests.interop import published

SENTENCE = """\
# newdoc
1\tthe\tthe\tDET\tDT\t_\t2\tdet\t_\t_
2\tships\tship\tNOUN\tNN\t_\t0\troot\t_\t_
3\tnear\tnear\tADP\tIN\t_\t5\tcase\t_\t_
4\tthe\tthe\tDET\tDT\t_\t5\tdet\t_\t_
5\t{0}\t{0}\tNOUN\tNN\t_\t2\tnmod:of\t_\t_
6\t.\t.\tPUNCT\t.\t_\t2\tpunct\t_\t_

"""


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp('heads')
    published.folder(folder / 'bert')
    trees = ''.join(SENTENCE.format(word) for word in ('moon', 'stormy', 'cow', 'barns'))
    (folder / 'trees.conllu').write_text(trees)
    (folder / 'long.conllu').write_text(SENTENCE.format('x' * 30))
    return folder


def loop(folder):
    """(relation, direction) → right guesses [L, H] and number, by transformers."""
    model = transformers.BertModel.from_pretrained(
        folder / 'bert', attn_implementation='eager', output_attentions=True
    )
    tokenizer = transformers.BertTokenizerFast(str(folder / 'bert/vocab.txt'))
    found = {}
    for tree in treebank.read([str(folder / 'trees.conllu')]):
        words = [tree.text[slice(*span)] for span in tree.words]
        encoded = tokenizer(words, is_split_into_words=True, return_tensors='pt')
        with torch.no_grad():
            attention = torch.stack(model.eval()(**encoded).attentions)[:, 0].numpy()
        pieces = [
            [i for i, w in enumerate(encoded.word_ids()) if w == n] for n in range(len(words))
        ]
        for word, (head, name) in enumerate(zip(tree.heads, tree.tags['deprel'], strict=True)):
            if name in ('root', 'punct'):
                continue
            for direction, (a, b) in enumerate([(word, head), (head, word)]):
                to_words = np.full((*attention.shape[:2], len(words)), -1.0)
                for other in set(range(len(words))) - {a}:
                    block = attention[:, :, pieces[a]][..., pieces[other]]
                    to_words[..., other] = block.sum(-1).mean(-1)
                right = to_words.argmax(-1) == b
                for relation in (name.partition(':')[0], 'all'):
                    key = f'{relation}, {["dependent to head", "head to dependent"][direction]}'
                    found.setdefault(key, []).append(right)
    return {key: (np.mean(own, axis=0), len(own)) for key, own in found.items()}


def test_accuracies_equal_a_loop_over_transformers(files, tmp_path):
    flags = [f'--model={files}/bert', f'--input={files}/trees.conllu', f'--output={tmp_path}/out']
    command.main(['heads', *flags, '--least=2', '--head=2-3', '--text=the ship near the moon'])
    found = json.loads((tmp_path / 'out/results.json').read_text())['results']['relations']
    expected = loop(files)
    assert set(found) == set(expected)
    for name, (accuracy, number) in expected.items():
        assert found[name]['dependencies'] == number
        np.testing.assert_allclose(found[name]['all_heads'], accuracy)
    # 'case' and one 'det' are two words and one word before their heads; 'nmod' three after.
    assert (
        found['case, dependent to head']['offset'],
        found['nmod, head to dependent']['offset'],
    ) == (2, 3)
    assert found['nmod, head to dependent']['offset_accuracy'] == 1
    assert (tmp_path / 'out/head_2-3.png').stat().st_size > 1000


def test_a_text_is_enough(files, tmp_path):
    text = 'the ships near the moon'
    flags = [f'--model={files}/bert', f'--output={tmp_path}/out', f'--text={text}']
    command.main(['heads', *flags])
    folder = transformers.BertModel.from_pretrained(
        files / 'bert', attn_implementation='eager', output_attentions=True
    )
    encoded = transformers.BertTokenizerFast(str(files / 'bert/vocab.txt'))(
        text.split(), is_split_into_words=True, return_tensors='pt'
    )
    with torch.no_grad():
        attention_TT = folder.eval()(**encoded).attentions[1][0, 2].numpy()
    words = encoded.word_ids()
    weights_WW = np.zeros((5, 5))
    for i, j in np.ndindex(5, 5):
        block = attention_TT[np.ix_([w == i for w in words], [w == j for w in words])]
        weights_WW[i, j] = block.sum(1).mean()
    found = json.loads((tmp_path / 'out/results.json').read_text())
    np.testing.assert_allclose(found['results']['attention'][1][2], weights_WW, rtol=1e-4)
    (table,) = found['tables'].values()
    (row,) = (row for row in table['rows'] if row[0] == '2-3')
    diagonals = [np.trace(weights_WW, offset) / weights_WW.sum() for offset in (-1, 0, 1)]
    np.testing.assert_allclose(row[1:], diagonals, rtol=1e-4)
    assert found['figures'] == ['heads_of_text.png']
    command.main(['heads', *flags, '--head=2-3', '--overwrite'])
    assert (tmp_path / 'out/head_2-3.png').exists()


@pytest.mark.parametrize(
    ('flags', 'error'),
    [
        ([], 'give --input or --text'),
        (['--text=ships', '--least=3'], '--least has no effect without --input'),
    ],
)
def test_what_is_missing_is_said_before_the_model_is_read(flags, error, tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.main(['heads', '--model=none', f'--output={tmp_path}/out', *flags])
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(
    ('flags', 'error'),
    [
        (['--head=3-1'], '--head=3-1 is not LAYER-HEAD from 1-1 to 2-4'),
        (['--head=first'], '--head=first is not LAYER-HEAD'),
        (['--least=99'], 'no relation occurs 99 times'),
        (['--text= '], '--text has no words'),
        (['--input=long.conllu'], 'all sentences are longer than the model takes'),
    ],
)
def test_wrong_options_are_one_line(flags, error, files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(files)
    given = [] if flags[0].startswith('--input') else ['--input=trees.conllu']
    least = [] if '--least=99' in flags else ['--least=1']
    output = f'--output={tmp_path}/out'
    with pytest.raises(SystemExit):
        command.main(['heads', '--model=bert', output, *given, *least, *flags])
    assert error in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / 'out').exists()
