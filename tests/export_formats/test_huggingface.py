"""Folders for transformers run their samples with transformers."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_jax.errors import UserError
from bert_jax.export_formats import huggingface
from tests.export_formats import exported
from tests.page import pages

HEADS = [
    ('bert', ()),
    ('bert', ('mlm', 'nsp')),
    ('bert', ('sequence_classification',)),
    ('bert', ('multiple_choice',)),
    ('bert', ('question_answering',)),
    ('albert', ('mlm', 'sop')),
    ('deberta', ('mlm',)),
    ('electra', ('rtd',)),
    ('modernbert', ('mlm',)),
    ('roberta', ('token_classification',)),
]


@pytest.mark.parametrize(('family', 'heads'), HEADS)
def test_the_loader_finds_the_outputs_of_every_head(family, heads, tmp_path, no_loader_process):
    kind = 'bytebpe' if family in ('modernbert', 'roberta') else 'wordpiece'
    model = pages.random_model(family, pages.tokenizer(kind), heads)
    written = huggingface.write(model, tmp_path / 'out')
    assert written.model.heads == heads
    load = exported.loader(tmp_path / 'out')
    assert all(difference <= tolerance for difference, tolerance, _ in load.check())
    found = load.run(exported.TEXTS[:2])
    assert all(len(array) == 2 and np.ptp(array) > 0 for array in found.values())
    assert set(found) == set(load.SIGNATURE['outputs'])


def test_an_export_runs_the_loader_which_finds_changed_weights(tmp_path):
    out = tmp_path / 'out'
    written = huggingface.write(exported.small_model(), out)
    assert written.report.startswith('largest difference from bert_jax')
    weights = load_file(out / 'model.safetensors')
    weights['bert.encoder.layer.1.output.dense.bias'][0] += 0.1
    save_file(weights, out / 'model.safetensors', {'format': 'pt'})
    ((difference, tolerance, _),) = exported.loader(out).check()
    assert difference > 100 * tolerance


def _reorder(weights):
    """The same function, whose sums over the units of a layer have another order."""
    for name in ('model.layers.0.mlp.Wi.weight', 'model.layers.1.mlp.Wi.weight'):
        gates_2UD = np.stack(np.split(weights[name], 2))
        order = np.random.default_rng(0).permutation(gates_2UD.shape[1])
        weights[name] = np.concatenate(gates_2UD[:, order])
        weights[name.replace('Wi', 'Wo')] = weights[name.replace('Wi', 'Wo')][:, order].copy()


def _swap_gates(weights, layer='model.layers.1.mlp.Wi.weight'):
    weights[layer] = np.concatenate(np.split(weights[layer], 2)[::-1])


def _change_a_weight(weights, layer='model.layers.0.mlp.Wo.weight'):
    weights[layer][0, 0] *= 1.1


@pytest.mark.parametrize(
    ('change', 'is_right'), [(_reorder, True), (_swap_gates, False), (_change_a_weight, False)]
)
@pytest.mark.parametrize('scale', [1, 5])
def test_other_rounding_is_allowed_and_wrong_weights_are_not(
    change, is_right, scale, tmp_path, no_loader_process
):
    """Rounding errors at five times the scale are a thousand times as large."""
    model = pages.random_model('modernbert', pages.tokenizer('bytebpe'), intermediate_size=96)
    params = jax.tree.map(lambda leaf: leaf * scale, model.params)
    huggingface.write(dataclasses.replace(model, params=params), tmp_path / 'out')
    weights = load_file(tmp_path / 'out/model.safetensors')
    change(weights)
    save_file(weights, tmp_path / 'out/model.safetensors', {'format': 'pt'})
    ((difference, tolerance, _),) = exported.loader(tmp_path / 'out').check()
    assert (difference <= tolerance) is is_right


def test_a_wrong_epsilon_is_refused(tmp_path, no_loader_process):
    huggingface.write(exported.small_model(), tmp_path / 'out')
    config = json.loads((tmp_path / 'out/config.json').read_text())
    assert config['layer_norm_eps'] == 1e-12
    for epsilon in (1e-12, 1e-5):
        (tmp_path / 'out/config.json').write_text(json.dumps(config | {'layer_norm_eps': epsilon}))
        ((difference, tolerance, _),) = exported.loader(tmp_path / 'out').check()
        assert (difference <= tolerance) is (epsilon == 1e-12)


def test_an_export_that_transformers_runs_otherwise_is_refused(tmp_path, monkeypatch):
    def fail(folder):
        raise UserError('not exported: the loader of the folder fails')

    monkeypatch.setattr(huggingface.folder, 'run_loader', fail)
    with pytest.raises(UserError, match='not exported'):
        huggingface.write(exported.small_model(), tmp_path / 'out')
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_tokenizer_has_no_loader(tmp_path):
    model = dataclasses.replace(exported.small_model(), tokenizer=None)
    assert huggingface.write(model, tmp_path / 'out').report == 'logits compared'
    assert not (tmp_path / 'out/load.py').exists()
    assert json.loads((tmp_path / 'out/config.json').read_text())['vocab_size']
