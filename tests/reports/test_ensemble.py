"""Predictions of several models combined into one file of class probabilities."""

import json

import numpy as np
import pytest
import torch

from bert_jax.errors import UserError
from bert_jax.reports import ensemble


def write(path, *lines, **changes):
    rows = [
        {'id': f'line {i}', 'texts': texts, 'probabilities': own} | changes
        for i, (texts, own) in enumerate(lines)
    ]
    path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    return str(path)


def test_the_logits_of_models_are_averaged_with_their_weights(tmp_path):
    logits = torch.tensor([[1.0, 2.0, -1.0], [0.5, -3.0, 2.0]])
    models = [dict(zip('abc', own.softmax(-1).tolist(), strict=True)) for own in logits]
    texts = ['one', 'two']
    paths = [
        write(tmp_path / f'{number}.jsonl', (texts, own), (['three'], own))
        for number, own in enumerate(models)
    ]
    output = tmp_path / 'soft.jsonl'
    ensemble.main([*paths, '--weights', '3', '1', f'--output={output}'])
    first, second = (json.loads(line) for line in output.open())
    expected = ((3 * logits[0] + logits[1]) / 4).softmax(-1)
    assert first.keys() == {'id', 'text', 'text2', 'label', 'probabilities'}
    assert second.keys() == {'id', 'text', 'label', 'probabilities'}
    assert (first['text'], first['text2'], second['text']) == ('one', 'two', 'three')
    np.testing.assert_allclose(list(first['probabilities'].values()), expected, rtol=1e-5)
    assert first['label'] == 'abc'[int(expected.argmax())]


@pytest.mark.parametrize(
    ('other', 'message'),
    [
        (
            [(['b'], {'x': 1.0})],
            'not for the same texts: .*b.jsonl differs from the others at line 0',
        ),
        ([(['a'], {'x': 1.0}), (['b'], {'x': 1.0})], 'a.jsonl differs from the others at line 1'),
        ([(['a'], {'y': 1.0})], 'no probabilities of the classes of .*; use predict --prob'),
    ],
)
def test_files_that_do_not_belong_together_are_refused(tmp_path, other, message):
    paths = [
        write(tmp_path / 'a.jsonl', (['a'], {'x': 1.0})),
        write(tmp_path / 'b.jsonl', *other),
    ]
    with pytest.raises(UserError, match=message):
        list(ensemble.records(paths, [1, 1]))


def test_mistakes_on_the_command_line_are_one_line(tmp_path, capsys):
    path = write(tmp_path / 'a.jsonl', (['a'], {'x': 1.0}))
    (tmp_path / 'bad.jsonl').write_text('{')
    for arguments, message in (
        ([path, '--weights', '1', '2'], '--weights is (1, 2); give 1'),
        ([str(tmp_path / 'bad.jsonl')], 'bad.jsonl, line 1 is not valid JSON'),
    ):
        with pytest.raises(SystemExit):
            ensemble.main([*arguments, f'--output={tmp_path}/soft.jsonl'])
        assert message in capsys.readouterr().err
