"""Folders of encoder–decoders: write texts by command, and what is refused."""

import json

import jax
import numpy as np
import pytest

from bert_jax import export, predict, tokenizers
from bert_jax.interop import huggingface, huggingface_export, surgery
from bert_jax.interop.families import encoder_pairs
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models import architectures
from tests.export_formats import exported

TEXTS = ['the quick brown fox jumps over the lazy dog and cats like milk'] * 20
SIZES = dict(hidden_size=16, num_layers=1, num_heads=2, intermediate_size=24)


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    """A folder of each family with its kind of tokenizer, and random weights."""
    made = {}
    kinds = {
        'bart': 'bytebpe:300',
        'mbart': 'unigram:60:languages=cy,en:cls=no',
        't5': 'unigram:60:sentinels=5:cls=no',
        'bert2bert': 'wordpiece:60',
    }
    for family, kind in kinds.items():
        tokenizer = tokenizers.train(kind, TEXTS)
        changes = {'vocab_size': tokenizer.vocab_size, 'decoder.num_layers': 1}
        if family == 'bert2bert':
            encoder = architectures.build('bert', **SIZES, vocab_size=tokenizer.vocab_size)
            architecture = encoder_pairs.paired(encoder, 2)
        else:
            name = 't5_1_0' if family == 't5' else family
            architecture = architectures.build(name, **SIZES, **changes)
        params, _ = loaded_model.fill({}, architecture, ('seq2seq',))
        params = jax.tree.map(lambda leaf: np.asarray(10 * leaf), params)
        folder = tmp_path_factory.mktemp('decoders') / family
        huggingface_export.save(LoadedModel(family, architecture, params, tokenizer), folder)
        made[family] = folder
    return made


def generate(folder, tmp_path, *flags):
    source, target = tmp_path / 'sources.txt', tmp_path / 'written.jsonl'
    source.write_text('the quick brown fox\ncats like milk\n')
    task = ['--task=generate', f'--input={source}', f'--output={target}', '--overwrite']
    predict.main([f'--model={folder}', *task, '--new_tokens=5', *flags])
    return [json.loads(line) for line in target.read_text().splitlines()]


@pytest.mark.parametrize(
    'family',
    [
        't5',
        *(pytest.param(name, marks=pytest.mark.slow) for name in ('bart', 'mbart', 'bert2bert')),
    ],
)
def test_transformers_computes_the_same_logits_from_an_export(
    folders, family, tmp_path, capsys, no_loader_process
):
    export.main([f'--model={folders[family]}', f'--output={tmp_path}/out'])
    warning = capsys.readouterr().err
    assert family != 't5' or 'depends on rounding' in warning  # not scaled by √head_size
    load = exported.loader(tmp_path / 'out')
    assert all(difference <= tolerance for difference, tolerance, _ in load.check())


@pytest.mark.parametrize('family', ['bart', 'mbart', 't5', 'bert2bert'])
def test_a_folder_writes_a_text_for_each_source(folders, family, tmp_path):
    language = ['--target_language=cy'] * (family == 'mbart')
    one = generate(folders[family], tmp_path, '--beams=2', *language)
    assert len(one) == 2
    assert all(record['text'] == record['written'][0] for record in one)
    assert one == generate(folders[family], tmp_path, '--beams=2', *language)


@pytest.mark.parametrize(
    ('family', 'flags', 'line'),
    [
        ('mbart', [], 'target_language'),
        ('t5', ['--target_language=cy'], 'texts do not start with a language'),
    ],
)
def test_a_language_is_needed_where_texts_start_with_one(
    folders, family, flags, line, tmp_path, capsys
):
    with pytest.raises(SystemExit):
        generate(folders[family], tmp_path, *flags)
    assert line in capsys.readouterr().err


@pytest.mark.parametrize('kind', ['onnx', 'stablehlo', 'peft'])
def test_other_formats_refuse_a_decoder(folders, kind, tmp_path, capsys):
    with pytest.raises(SystemExit):
        export.main([f'--model={folders["t5"]}', f'--output={tmp_path}/out', f'--format={kind}'])
    assert f'--format={kind} cannot hold a model with a decoder yet' in capsys.readouterr().err


def test_weights_are_fitted_to_more_positions_and_another_dropout(folders):
    """Both position tables grow, as when a recipe starts from a folder."""
    loaded = huggingface.load(folders['bart'])
    changes = {'max_position_embeddings': 1030, 'feedforward_dropout': 0.1}
    longer = loaded.architecture.changed(changes)
    fitted, lines = surgery.fit(loaded, longer, loaded.tokenizer, ['seq2seq'])
    assert lines == ['positions: 1024 → 1028 (tile)']
    for stack in ('encoder', 'decoder'):
        table = fitted.params[stack]['embeddings']['position']
        np.testing.assert_array_equal(table[1026:], table[2:6])
