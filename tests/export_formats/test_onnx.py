"""ONNX models compute what predict does."""

import collections
import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import export
from bert_jax.errors import UserError
from bert_jax.interop import loading
from bert_jax.loaded.sentence_modules import Dense, Normalize, SentenceModules
from bert_jax.models.architecture_parts import HeadLSTM
from tests.export_formats import exported
from tests.inference import small_runs
from tests.page import pages

onnx = pytest.importorskip('onnx', reason='onnx is not installed')
onnxruntime = pytest.importorskip('onnxruntime', reason='onnxruntime is not installed')
from bert_jax.export_formats import onnx_conversion, onnx_variants  # noqa: E402  (import onnx)

PROMPTS = {'document': 'a cat '}


def test_onnx_computes_vectors_of_any_number_of_texts_of_any_length(tmp_path):
    dense = Dense(np.eye(5, 32, dtype=np.float32), np.ones(5, np.float32), _TANH)
    modules = SentenceModules(
        ('cls', 'mean'), (dense, Normalize()), 40, {'document': 'a cat '}, 'document'
    )
    model = dataclasses.replace(exported.small_model(), sentence_modules=modules)
    exported.write(tmp_path / 'out', 'onnx', model, task='embed')
    for texts in (exported.TEXTS, ['x ' * 30]):
        assert exported.embeds_like_predict(tmp_path / 'out', model, texts)
    vectors = exported.loader(tmp_path / 'out').run(['x'])['sentence_embedding']
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)


_TANH = 'torch.nn.modules.activation.Tanh'


_MIX = {'head_states': 'mix', 'head_lstm': HeadLSTM(1, 5), 'classifier.pooling': 'concat'}


@pytest.mark.parametrize(
    ('kind', 'changes', 'architecture'),
    [('relation', {}, {}), ('tagging', {'crf': True}, {}), ('classification', {}, _MIX)],
)
def test_onnx_computes_fine_tuned_heads(kind, changes, architecture, tmp_path):
    model = loading.load_any(small_runs.save_run(tmp_path / 'run', kind, changes, architecture))
    written = exported.write(tmp_path / 'out', 'onnx', model)
    assert 'largest difference from bert_jax' in written.report


def test_operations_are_those_of_jax(tmp_path):
    def function(params, inputs):
        x, number = params['table'][inputs['ids']], jnp.arange(inputs['ids'].shape[1])
        last = jnp.take_along_axis(x, inputs['ids'][:, ::-1, None, None] % 3, axis=1)
        carried, steps = jax.lax.scan(
            lambda c, row: (jnp.tanh(c + row), c.sum(-1)), x[:, 0], x.swapaxes(0, 1), reverse=True
        )
        return {
            'sums': jnp.einsum('btdk,bukd->btu', x, x.swapaxes(2, 3)),
            'sorted': jnp.argsort(-inputs['ids'] * 100 + number, axis=1),
            'running': jax.lax.cummax(inputs['ids'], axis=1) + jnp.cumsum(inputs['ids'], axis=1),
            'last': jnp.where(last > 0, last, -number[:, None, None]),
            'carried': carried,
            'steps': jnp.pad(steps.swapaxes(0, 1), [(0, 0), (1, 0), (0, 0)])[:, :-1],
            'bits': (inputs['ids'] & 2) | (inputs['ids'] % 3),
            'any': (inputs['ids'] > 3).any(1) & (inputs['ids'] != 7).all(1),
        }

    rng = np.random.default_rng(0)
    params = {'table': rng.normal(size=(9, 4, 3)).astype(np.float32)}
    batch, length = jax.export.symbolic_shape('b, t')
    shapes = {'ids': jax.ShapeDtypeStruct((batch, length), jnp.int32)}
    model = onnx_conversion.to_model(function, params, shapes)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for shape in ((2, 5), (1, 3)):
        inputs = {'ids': rng.integers(0, 9, shape, dtype=np.int32)}
        found = session.run(None, {'ids': inputs['ids'].astype(np.int64)})
        expected = function(jax.tree.map(jnp.asarray, params), inputs)
        for name, array in zip(sorted(expected), found, strict=True):
            np.testing.assert_allclose(array, expected[name], atol=1e-5, err_msg=name)


def _graph(path):
    return onnx.load(path / 'onnx/model.onnx').graph


def test_groups_of_operators_become_one(tmp_path):
    """Numbers are compared by every export; here, that no group is left in pieces."""
    for act, approximate in (('gelu', None), ('gelu_tanh', b'tanh')):
        model = exported.small_model(hidden_act=act)
        exported.write(tmp_path / act, 'onnx', model, task='embed')
        nodes = _graph(tmp_path / act).node
        number = collections.Counter(node.op_type for node in nodes)
        layers = model.architecture.num_layers
        assert (number['Gelu'], number['Softmax']) == (layers, layers)
        assert number['LayerNormalization'] == 1 + 2 * layers
        assert not number.keys() & {'Erf', 'Tanh', 'Exp', 'Expand', 'ReduceMax'}
        assert number['MatMul'] == 8 * layers + 1  # and the mean over tokens
        (gelu, *_) = (node for node in nodes if node.op_type == 'Gelu')
        assert [attribute.s for attribute in gelu.attribute] == [approximate] * bool(approximate)


def test_what_only_resembles_a_group_stays(tmp_path):
    """A constant of another value, or another axis, is another function."""

    def function(params, inputs):
        x = params['table'][inputs['ids']]
        centered = x - x.mean(-1, keepdims=True)
        scale = jax.lax.rsqrt(jnp.square(centered).mean(1, keepdims=True) + 1e-6)
        return {
            'norm': centered * scale * params['scale'],
            'gelu': 0.5 * x * (1 + jax.lax.erf(x * 0.6)),
            'softmax': jnp.exp(x - x.max(-1, keepdims=True))
            / jnp.exp(x - x.max(-1, keepdims=True)).sum(1, keepdims=True),
        }

    rng = np.random.default_rng(0)
    params = {'table': rng.normal(size=(9, 4)).astype(np.float32)}
    params['scale'] = rng.normal(size=4).astype(np.float32)
    batch, length = jax.export.symbolic_shape('b, t')
    shapes = {'ids': jax.ShapeDtypeStruct((batch, length), jnp.int32)}
    model = onnx_conversion.to_model(function, params, shapes)
    ids = rng.integers(0, 9, (2, 5))
    found = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {'ids': ids})
    expected = function(jax.tree.map(jnp.asarray, params), {'ids': ids})
    for name, array in zip(sorted(expected), found, strict=True):
        np.testing.assert_allclose(array, expected[name], atol=1e-5, err_msg=name)


def test_the_tied_table_is_stored_once_in_a_form_that_quantizers_take(tmp_path):
    model = exported.small_model()
    exported.write(tmp_path / 'out', 'onnx', model)
    graph, architecture = _graph(tmp_path / 'out'), model.architecture
    shape = [architecture.padded_vocab_size, architecture.hidden_size]
    tables = [array.name for array in graph.initializer if [*array.dims] in (shape, shape[::-1])]
    readers = [node.op_type for node in graph.node if {*node.input} & {*tables}]
    assert len(tables) == 1
    assert sorted(readers) == ['Gather', 'Gemm']


def test_the_folder_says_what_clients_ask_for(tmp_path):
    run = small_runs.save_run(tmp_path / 'run', 'classification')
    exported.write(tmp_path / 'out', 'onnx', loading.load_any(run))
    config = json.loads((tmp_path / 'out/config.json').read_text())
    assert config['model_type'] == 'bert'
    assert config['architectures'] == ['BertForSequenceClassification']
    assert config['id2label'] == {'0': 'no', '1': 'yes'}
    tokenizer = json.loads((tmp_path / 'out/tokenizer_config.json').read_text())
    assert tokenizer['tokenizer_class'] == 'BertTokenizer'  # has token types in transformers.js
    graph = _graph(tmp_path / 'out')
    assert {tensor.type.tensor_type.elem_type for tensor in graph.input} == {onnx.TensorProto.INT64}
    assert [tensor.name for tensor in graph.output] == ['logits', 'probabilities']
    encoder = exported.small_model()
    exported.write(tmp_path / 'encoder', 'onnx', encoder, task='embed')
    names = [tensor.name for tensor in _graph(tmp_path / 'encoder').output]
    assert names == ['last_hidden_state', 'sentence_embedding']
    config = json.loads((tmp_path / 'encoder/config.json').read_text())
    assert config['architectures'] == ['BertModel']


def test_variants_are_smaller_and_their_answers_are_compared(tmp_path):
    model = exported.small_model(num_layers=1, hidden_size=64, intermediate_size=512)
    for task, unit in (('embed', 'cosines of 132 texts'), ('fill_mask', 'tokens of 132 texts')):
        out = tmp_path / task
        written = exported.write(out, 'onnx', model, task=task, variants=('int8', 'float16'))
        for line, name, most in zip(
            written.lines, ('model_quantized', 'model_fp16'), (0.4, 0.6), strict=True
        ):
            assert line.startswith(f'onnx/{name}.onnx: ')
            assert unit in line
            file = out / f'onnx/{name}.onnx'
            assert file.stat().st_size < most * (out / 'onnx/model.onnx').stat().st_size
            samples = np.load(out / 'samples.npz')
            inputs = {
                name: samples[name].astype(np.int64)
                for name in exported.loader(out).SIGNATURE['inputs']
            }
            found = onnxruntime.InferenceSession(file).run(None, inputs)[0]
            (first, *_) = sorted(exported.loader(out).SIGNATURE['outputs'])
            expected = samples[f'expected_{first}']
            difference = np.nanmax(np.abs(found - expected))
            assert 1e-6 < difference < 0.2 * np.nanmax(np.abs(expected))


def test_agreement_counts_texts_tokens_and_pairs():
    mask = np.array([[1, 1, 0], [1, 1, 1]])
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2, 3, 4))
    changed = logits.copy()
    changed[0, 2] = 0  # padding, which does not count
    changed[1, 0] = -logits[1, 0]
    inputs = {'attention_mask': mask}
    line = onnx_variants.describe({'logits': logits}, {'logits': changed}, inputs, {'logits'})
    assert '80.0 % of the tokens of 2 texts' in line
    assert f'difference {np.abs(logits - changed)[1].max():.2g} in logits' in line
    start = {'start_logits': logits[..., 0]}
    per_token = frozenset(start)
    assert '100.0 % of the texts' in onnx_variants.describe(start, start, inputs, per_token)
    vectors = {'sentence_embedding': rng.normal(size=(9, 4))}
    inputs = {'attention_mask': np.ones((9, 1))}
    line = onnx_variants.describe(vectors, vectors, inputs, frozenset())
    assert line.endswith('of 9 texts 1.0000')


def test_variants_that_do_not_exist_and_texts_that_cannot_be_read_are_one_line(tmp_path, capsys):
    with pytest.raises(UserError, match="variant.*'int4'"):
        exported.write(tmp_path / 'out', 'onnx', exported.small_model(), variants=('int4',))
    assert not (tmp_path / 'out').exists()
    run = small_runs.save_run(tmp_path / 'run', 'classification')
    flags = [f'--model={run}', f'--output={tmp_path / "out"}', '--format=onnx', '--variants=int8']
    with pytest.raises(SystemExit):
        export.main([*flags, f'--sentences={tmp_path / "none.txt"}'])
    assert 'none.txt cannot be read' in capsys.readouterr().err
    (tmp_path / 'some.txt').write_text('the ship\nthe moon and the star\n\n')
    export.main([*flags, f'--sentences={tmp_path / "some.txt"}'])
    assert '% of the texts of 2 texts' in capsys.readouterr().out


def test_a_model_that_transformers_does_not_have_is_exported_with_a_line(tmp_path):
    model = pages.random_model('mosaicbert', pages.tokenizer('wordpiece'))
    written = exported.write(tmp_path / 'out', 'onnx', model, task='embed')
    assert 'no config.json, without which transformers.js' in written.lines[0]
    assert exported.embeds_like_predict(tmp_path / 'out', model, exported.TEXTS)


def test_an_unknown_operation_is_one_line():
    shapes = {'ids': jax.ShapeDtypeStruct((2,), jnp.int32)}
    with pytest.raises(UserError, match='--format=onnx has no operators for population_count'):
        onnx_conversion.to_model(lambda _, x: {'y': jax.lax.population_count(x['ids'])}, {}, shapes)


def test_matrices_that_layers_share_are_stored_once(tmp_path):
    model = pages.random_model('albert', pages.tokenizer('wordpiece'))
    assert model.architecture.num_layers > 1
    exported.write(tmp_path / 'out', 'onnx', model, task='embed')
    assert exported.embeds_like_predict(tmp_path / 'out', model, exported.TEXTS)
    (file,) = (tmp_path / 'out/onnx').glob('*.onnx')
    stored = [array for array in onnx.load(file).graph.initializer if len(array.dims) > 1]
    matrices = [array for array in jax.tree.leaves(model.params['encoder']) if array.ndim > 1]
    assert 4 * sum(np.prod(array.dims) for array in stored) <= sum(a.nbytes for a in matrices)
