"""Models that packages of PyPI contain: as printed, and as transformers computes them."""

import subprocess

import pytest

import bert_jax
from experiments.published import run
from experiments.published.packages import MODELS, prepare_smiles
from tests.interop import published


def test_a_model_is_compared_with_transformers(tmp_path):
    path = published.folder(tmp_path / 'bert', 'BertForPreTraining', max_position_embeddings=64)
    differences, allowed = run.compare(path, 'BertForPreTraining')
    assert differences.keys() == allowed.keys() == {'states', 'mlm', 'nsp'}
    assert all(0 < differences[name] <= allowed[name] < 1e-3 for name in allowed)


def test_reactions_are_split_into_tokens_of_smiles(tmp_path):
    source = published.folder(tmp_path / 'source', 'BertForMaskedLM')
    words = [
        '[PAD]',
        '[UNK]',
        '[CLS]',
        '[SEP]',
        '[MASK]',
        'C',
        'Cl',
        '[N+]',
        '(',
        ')',
        '>>',
        'c',
        '1',
    ]
    words += [f'[unused{number}]' for number in range(131 - len(words))]
    (source / 'vocab.txt').write_text('\n'.join(words) + '\n')
    prepare_smiles(source, tmp_path / 'model')
    tokenizer = bert_jax.load(tmp_path / 'model').tokenizer
    (ids,) = tokenizer.encode_batch(['CCl[N+](c1)>>Zn']).ids
    assert [words[i] for i in ids] == ['C', 'Cl', '[N+]', '(', 'c', '1', ')', '>>', '[UNK]']


@pytest.mark.slow
@pytest.mark.parametrize('name', MODELS)
def test_a_published_model_is_reproduced(name, tmp_path):
    pytest.importorskip('onnx' if name == 'quire' else 'torch')
    try:
        run.download(MODELS[name].package, tmp_path)
    except subprocess.CalledProcessError:
        pytest.skip(f'{MODELS[name].package} cannot be downloaded')
    assert run.reproduce(MODELS[name], tmp_path, name)['is_within_tolerance']
