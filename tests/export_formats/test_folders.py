"""Folders of exported models: files, checks and errors."""

import dataclasses
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import unicodedata

import numpy as np
import pytest

from bert_jax import export, export_formats, tokenizers
from bert_jax.errors import UserError
from bert_jax.interop import loading
from bert_jax.models import pooling
from tests.export_formats import exported
from tests.inference import small_runs
from tests.page import pages
from tests.parity import sentencepiece_text


@pytest.fixture(scope='module')
def model():
    return exported.small_model()


@pytest.fixture(scope='module')
def folder(model, tmp_path_factory):
    path = tmp_path_factory.mktemp('exports') / 'stablehlo'
    exported.write(path, 'stablehlo', model, task='embed')
    return path


def test_the_program_computes_any_number_of_texts_of_any_length_like_predict(folder, model):
    for texts in (exported.TEXTS, ['one'], ['x ' * 62]):
        assert exported.embeds_like_predict(folder, model, texts)


def test_a_program_of_a_fixed_shape_computes_texts_that_fit(model, tmp_path):
    exported.write(tmp_path / 'out', 'stablehlo', model, task='embed', shape=(2, 32))
    assert (tmp_path / 'out/model.mlirbc').read_bytes().startswith(b'ML\xefR')
    load = exported.loader(tmp_path / 'out')
    assert load.SIGNATURE['max_length'] == 32
    assert load.SIGNATURE['arguments'][-3:] == ['attention_mask', 'input_ids', 'token_type_ids']
    assert exported.embeds_like_predict(tmp_path / 'out', model, exported.TEXTS[:3])
    with pytest.warns(UserWarning, match='truncated to 32 tokens'):
        assert load.run(['cats ' * 50])['last_hidden_state'].shape == (1, 32, 16)
    with pytest.raises(UserError, match='--shape is 2,65; it is a number of texts'):
        exported.write(tmp_path / 'long', 'stablehlo', model, task='embed', shape=(2, 65))


@pytest.mark.parametrize('format_name', ['onnx', 'stablehlo', 'sentence_transformers'])
def test_no_file_has_a_path_of_the_exporting_machine(format_name, tmp_path):
    for package in export_formats.FORMATS[format_name].requires:
        pytest.importorskip(package, reason=f'{package} is not installed')
    run = small_runs.save_run(tmp_path / 'run', 'classification')
    model = loading.load_any(run)
    out = tmp_path / 'out'
    task = 'embed' if format_name == 'sentence_transformers' else 'classify'
    exported.write(out, format_name, model, task=task)
    paths = [str(tmp_path), str(pathlib.Path(export_formats.__file__).parents[2]), 'site-packages']
    for file in out.rglob('*'):
        found = [path for path in paths if file.is_file() and path.encode() in file.read_bytes()]
        assert (file.name, found) == (file.name, [])


def test_a_text_that_is_too_long_is_truncated_with_a_warning(folder):
    load = exported.loader(folder)
    with pytest.warns(UserWarning, match='texts are truncated to 64 tokens'):
        assert load.encode(['cats ' * 65])['input_ids'].shape == (1, 64)


def test_decomposed_text_in_a_sentencepiece_vocabulary_gives_the_vectors_of_predict(
    tmp_path, capsys
):
    text = sentencepiece_text.WORDS['vietnamese'] + ' ' + sentencepiece_text.WORDS['korean']
    model = pages.random_model('bert', tokenizers.train('unigram:150', [text] * 50, False))
    exported.write(tmp_path / 'out', 'stablehlo', model, task='embed')
    decomposed = [unicodedata.normalize('NFD', word) for word in text.split()]
    assert exported.embeds_like_predict(tmp_path / 'out', model, decomposed)
    assert 'drop characters of decomposed text' in capsys.readouterr().err


def test_the_loader_finds_changed_weights_and_changed_tokens(folder, tmp_path):
    from safetensors.numpy import load_file, save_file

    def report(path):
        return subprocess.run([sys.executable, path / 'load.py'], capture_output=True, text=True)

    broken = tmp_path / 'broken'
    broken.mkdir()
    for file in folder.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    weights = load_file(folder / 'weights.safetensors')
    name = 'encoder/layers_1/feedforward/output/bias'
    weights[name][0] += 0.1
    save_file(weights, broken / 'weights.safetensors')
    done = report(broken)
    assert done.returncode == 1
    assert re.search(
        r'AssertionError: .* in (last_hidden_state|sentence_embedding); rounding explains',
        done.stderr,
    )
    tokenizer = json.loads((folder / 'tokenizer.json').read_text())
    tokenizer['normalizer']['lowercase'] = False
    (broken / 'tokenizer.json').write_text(json.dumps(tokenizer))
    assert 'the tokenizer gives other input_ids' in report(broken).stderr


def test_a_model_that_computes_otherwise_is_not_exported(model, tmp_path, monkeypatch):
    monkeypatch.setattr(pooling.Pooling, '__call__', pooling.POOLINGS['max'].__call__)
    with pytest.raises(UserError, match='not exported: .*AssertionError'):
        exported.write(tmp_path / 'out', 'stablehlo', model, task='embed')
    assert list(tmp_path.iterdir()) == []


def test_a_command_exports_a_fine_tuned_run(tmp_path, capsys):
    run = small_runs.save_run(tmp_path / 'run', 'classification')
    flags = [f'--model={run}', f'--output={tmp_path / "out"}', '--format=stablehlo']
    export.main(flags)
    assert 'stablehlo, task classify' in capsys.readouterr().out
    signature = json.loads((tmp_path / 'out/signature.json').read_text())
    assert signature['labels'] == ['no', 'yes']
    found = exported.loader(tmp_path / 'out').run(['the ship', ('the moon', 'a storm')])
    np.testing.assert_allclose(found['probabilities'].sum(1), 1, rtol=1e-6)
    with pytest.raises(SystemExit):
        export.main(flags)
    assert 'out exists; add --overwrite' in capsys.readouterr().err
    (tmp_path / 'out/stale').write_text('')
    export.main([*flags, '--overwrite'])
    assert not (tmp_path / 'out/stale').exists()
    assert (tmp_path / 'out/signature.json').exists()
    (tmp_path / 'out/load.py').unlink()
    with pytest.raises(SystemExit):
        export.main([*flags, '--overwrite'])
    assert 'has no load.py, so it was not made by this command' in capsys.readouterr().err


def test_what_cannot_be_exported_is_one_line(model, tmp_path, monkeypatch):
    out = tmp_path / 'out'
    headless = dataclasses.replace(model, params={'encoder': model.params['encoder']})
    for error, given, options in [
        (
            'the model has no head for fill_mask; it can answer embed',
            headless,
            {'task': 'fill_mask'},
        ),
        ('the model has no head for classify', model, {'task': 'classify'}),
        ('pseudo_likelihood is not one pass of a network', model, {'task': 'pseudo_likelihood'}),
        ('--normalize is an option of --task=embed', model, {'normalize': True}),
        ('has no tokenizer', dataclasses.replace(model, tokenizer=None), {}),
    ]:
        with pytest.raises(UserError, match=error):
            exported.write(out, 'stablehlo', given, **options)
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
    for name in ('onnx', 'sentence_transformers'):
        package, requirement = next(iter(export_formats.FORMATS[name].requires.items()))
        with pytest.raises(UserError, match=f'needs {package}.*: pip install {requirement}'):
            exported.write(out, name, model)
    assert list(tmp_path.iterdir()) == []


def test_vectors_are_normalized_on_request(model, tmp_path):
    exported.write(tmp_path / 'out', 'stablehlo', model, task='embed', normalize=True)
    vectors = exported.loader(tmp_path / 'out').run(exported.TEXTS)['sentence_embedding']
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
