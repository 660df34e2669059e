"""Architectures: sizes, published parameter counts, names and axes of parameters."""

import ast
import dataclasses
import importlib
import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from bert_jax.errors import UserError
from bert_jax.models import architectures
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.architecture_parts import KINDS
from bert_jax.models.block import ATTENTIONS
from bert_jax.models.encoders import EncoderOutput, build_encoder
from bert_jax.models.feedforward import ACTIVATIONS, FEEDFORWARDS
from bert_jax.models.heads.classification import CLASSIFIERS, SequenceClassificationHead
from bert_jax.models.heads.prediction import MaskedLanguageModelHead, NextSentenceHead
from bert_jax.models.module import NORMS
from bert_jax.models.parameters import num_parameters, stack_layers
from bert_jax.models.rows import Rows

HERE = pathlib.Path(__file__).parent
ROWS = Rows(np.ones((1, 1), np.int32), np.ones((1, 1), np.int32))


def abstract_params(module, *inputs):
    """Shapes and logical axes of the parameters, without computing anything."""
    return jax.eval_shape(module.init, jax.random.key(0), *inputs)['params']


def encoder_params(architecture, compute=None):
    ids = jnp.zeros((1, 2), jnp.int32)
    return abstract_params(build_encoder(architecture, compute or Compute()), Rows(ids, ids))


def described(params):
    leaves = jax.tree.leaves_with_path(params, is_leaf=lambda x: isinstance(x, nn.Partitioned))
    return {
        '/'.join(key.key for key in path): [
            f'{name} {size}' for name, size in zip(leaf.names, leaf.value.shape, strict=True)
        ]
        for path, leaf in leaves
    }


@pytest.mark.parametrize(
    ('name', 'count'),
    [
        ('bert_base', 109_482_240),
        ('bert_large', 335_141_888),
        ('bert_tiny', 4_385_920),
        ('bert_mini', 11_170_560),
        ('bert_small', 28_763_648),
        ('bert_medium', 41_373_184),
        ('spanbert_base', 108_310_272),
        ('roberta_base', 124_055_040),
        ('roberta_large', 354_310_144),
        ('xlmr_base', 277_453_056),
        ('xlmr_large', 558_840_832),
        ('albert_base', 11_683_584),
        ('albert_large', 17_683_968),
        ('albert_xlarge', 58_724_864),
        ('albert_xxlarge', 222_595_584),
        ('electra_small', 13_483_008),
        ('electra_base', 108_891_648),
        ('electra_large', 334_092_288),
        ('distilbert_base', 66_362_880),
        ('electra_base_generator', 33_511_168),
        ('electra_large_generator', 50_999_552),
        ('modernbert_base', 149_014_272),
        ('modernbert_large', 394_781_696),
        ('ettin_17m', 16_797_440),
        ('ettin_400m', 394_781_696),
        ('mosaicbert_base', 137_368_320),
        ('neobert', 221_665_536),
    ],
)
@pytest.mark.parametrize('stack', [True, pytest.param(False, marks=pytest.mark.slow)])
def test_published_parameter_counts(name, count, stack):
    """Equal layers are stacked, because they are then traced once instead of up to 28 times."""
    architecture = architectures.build(name)
    compute = Compute(scan_layers=stack and architecture.equal_layers)
    params = encoder_params(architecture, compute)
    assert num_parameters(params, architecture) == count
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(params))


def test_layers_that_differ_cannot_be_stacked():
    with pytest.raises(UserError, match='cannot be stacked; set scan_layers=False'):
        encoder_params(architectures.build('modernbert_base'), Compute(scan_layers=True))


def test_layers_that_are_not_stacked_have_as_many_parameters():
    architecture = architectures.build('bert_base')
    params = encoder_params(architecture, Compute(scan_layers=False))
    assert num_parameters(params, architecture) == 109_482_240


def test_small_sizes_follow_from_layers_and_width():
    for num_layers in (2, 4, 6, 8, 10, 12):
        for hidden_size in (128, 256, 512, 768):
            architecture = architectures.build(
                'bert', num_layers=num_layers, hidden_size=hidden_size
            )
            assert architecture.num_heads * 64 == hidden_size
            assert architecture.intermediate_size == 4 * hidden_size


def test_parameter_names_shapes_and_axes_are_unchanged():
    """Change the golden file only to change checkpoints on purpose."""
    architecture = architectures.build('bert_tiny', num_layers=1)
    compute = Compute()
    hidden, table = jnp.zeros((1, 1, 128)), jnp.zeros((architecture.padded_vocab_size, 128))
    states = EncoderOutput(hidden, hidden[0], embedding_VE=table)
    params = {
        'encoder': encoder_params(architecture),
        'mlm': abstract_params(MaskedLanguageModelHead(architecture, compute), states, ROWS),
        'nsp': abstract_params(NextSentenceHead(architecture, compute), states, ROWS),
    }
    assert described(params) == json.loads((HERE / 'bert_parameters.json').read_text())


def test_scan_adds_one_axis_to_each_parameter():
    architecture = architectures.build('bert_tiny')
    scanned = encoder_params(architecture, Compute(scan_layers=True))
    query = scanned['layers']['attention']['query']['kernel']
    assert query.names == ('layers', 'embed', 'heads', 'head_dim')
    separate = nn.unbox(encoder_params(architecture))
    stacked = jax.eval_shape(stack_layers, separate)
    assert stacked == nn.unbox(scanned)


def test_every_architecture_file_is_in_the_table():
    folder = pathlib.Path(architectures.__file__).parent
    files = {path.stem for path in folder.glob('*.py')} - {'__init__', 'builder'}
    modules = [importlib.import_module(f'{architectures.__name__}.{file}') for file in files]
    for module in modules:
        assert module.BUILDERS.items() <= {**architectures.BUILDERS}.items()
    assert len(architectures.BUILDERS) == sum(len(module.BUILDERS) for module in modules)


@pytest.mark.parametrize(
    ('name', 'table'),
    [
        ('positions', KINDS['positions']),
        ('attention', ATTENTIONS),
        ('hidden_act', ACTIVATIONS),
        ('feedforward', FEEDFORWARDS),
        ('norms.function', NORMS),
        ('classifier.layers', CLASSIFIERS),
    ],
)
def test_the_names_of_a_component_are_those_of_its_table(name, table):
    with pytest.raises(UserError, match=f"unknown {name.split('.')[-1]} 'new'; known: ") as error:
        architectures.build('bert', **{name: 'new'})
    assert set(str(error.value).partition('known: ')[2].split(', ')) == set(table)


def test_saved_architectures_are_read_back():
    current = architectures.build('roberta', attention='alibi', **{'positions.first': 4})
    assert Architecture.from_json(json.loads(json.dumps(dataclasses.asdict(current)))) == current
    for name in ('modernbert', 'deberta_v3_base', 'albert'):
        saved = architectures.build(name)
        fields = json.loads(json.dumps(dataclasses.asdict(saved)))
        assert Architecture.from_json(fields) == saved
    assert fields['positions'] == {'kind': 'learned'}


def test_model_code_does_not_mention_architectures_by_name():
    folder = pathlib.Path(architectures.__file__).parent
    families = {path.stem for path in folder.glob('*.py')} - {'__init__', 'builder'}
    names = families | architectures.BUILDERS.keys()
    files = [path for path in folder.parent.rglob('*.py') if folder not in path.parents]
    assert {'block', 'transformer', 'classification'} <= {path.stem for path in files}
    for path in files:
        tree = ast.parse(path.read_text())
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        used |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        assert not {str(name).lower() for name in used} & names, path


TOY = """
from bert_jax.models.architecture_parts import NO_BIASES, Alibi, Classifier, NoPositions, Norms
from bert_jax.models.architectures.builder import Builder

BUILDERS = {
    'toy': Builder(
        sizes=dict(vocab_size=20, hidden_size=12, num_heads=3, initializer_range=0.2),
        fixed=dict(
            windows=(1, 2),
            type_vocab_size=0,
            hidden_act='silu',
            positions=NoPositions(),
            attention=Alibi(),
            feedforward='gated',
            norms=Norms('rms_norm', 'pre', embeddings=False),
            biases=NO_BIASES,
            pooler=False,
            classifier=Classifier('dense', pooling='mean'),
        ),
    )
}
"""


def test_a_new_architecture_is_one_file_and_one_line(monkeypatch, tmp_path):
    """With components that no other architecture combines."""
    (tmp_path / 'toy.py').write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        architectures,
        'BUILDERS',
        {
            **architectures.BUILDERS,
            **importlib.import_module('toy').BUILDERS,
        },
    )
    architecture = architectures.build('toy', num_layers=2)
    ids = np.arange(6)[None] + 3
    mask = np.ones_like(ids)
    encoder = build_encoder(architecture, Compute(scan_layers=True))
    output, variables = jax.jit(encoder.init_with_output)(jax.random.key(0), Rows(ids, mask))
    params = nn.unbox(variables)['params']
    assert set(params['embeddings']) == {'token'}
    assert params['layers']['attention_norm'].keys() == {'scale'}
    assert output.pooled_BD is None
    changed = encoder.apply({'params': params}, Rows(np.where(ids == 3, 9, ids), mask))
    difference = np.abs(changed.hidden_BTD - output.hidden_BTD).max(-1)[0]
    # Layers with windows 1 and 2 carry information over three positions.
    assert (difference > 1e-6).tolist() == [True] * 4 + [False] * 2
    head = SequenceClassificationHead(architecture, Compute(), 3)
    logits, variables = head.init_with_output(jax.random.key(1), output, Rows(ids, mask))
    assert logits.shape == (1, 3)
    assert set(variables['params']) == {'transform', 'output'}
    with pytest.raises(UserError, match="size of architecture toy 'norms'; .*known: .*vocab_size"):
        architectures.build('toy', norms=None)


def test_initial_values_are_truncated_and_padding_rows_are_zero():
    """Truncated at two standard deviations without rescaling, to deviation 0.8796 · 0.02."""
    architecture = architectures.build('bert', num_layers=1, hidden_size=64, vocab_size=1000)
    ids = jnp.zeros((1, 2), jnp.int32)
    encoder = build_encoder(architecture, Compute())
    params = nn.unbox(jax.jit(encoder.init)(jax.random.key(0), Rows(ids, ids)))['params']
    token = params['embeddings']['token']
    assert token.shape == (1024, 64)
    assert not token[1000:].any()
    assert abs(token[:1000].std() / (0.8796 * 0.02) - 1) < 0.02
    assert abs(token).max() <= 0.04
    kernel = params['layers_0']['feedforward']['input']['kernel']
    assert abs(kernel.std() / (0.8796 * 0.02) - 1) < 0.02


@pytest.mark.parametrize(
    ('name', 'sizes', 'message'),
    [
        ('brat', {}, "unknown architecture 'brat'; .*known: albert, .*bert_base"),
        ('bert', {'hidden': 3}, "'hidden'; .*known: .*hidden_size"),
        (
            'bert',
            {'hidden_size': 10, 'num_heads': 3},
            'hidden_size 10 is not divisible by num_heads 3',
        ),
        ('bert', {'hidden_act': 'relu6'}, "'relu6'; known: gelu, gelu_rational, gelu_tanh"),
        ('bert', {'num_layers': 0}, 'num_layers is 0'),
        ('bert', {'convolution.width': 3}, 'convolution.width is 3, but None has no width'),
        ('bert', {'attention.theta': 9.0}, r'attention.theta is 9.0, but Standard.* no theta'),
        (
            'roberta',
            {'max_position_embeddings': 2},
            'leaves no positions after the first position 2',
        ),
        ('distilbert', {'type_vocab_size': 2}, "size of architecture distilbert 'type_vocab_size'"),
        ('modernbert', {'num_heads': 256}, 'even head size, not 3'),
        (
            'bert',
            {'classifier.pooling': 'max'},
            "unknown pooling 'max'; known: pooler, first, last, mean",
        ),
        ('bert', {'hidden_dropout': 1.0}, r'hidden_dropout is 1.0, must be in \[0, 1\)'),
    ],
)
def test_invalid_values_are_errors(name, sizes, message):
    with pytest.raises(UserError, match=message):
        architectures.build(name, **sizes)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'norms.placement': 'pre_except_first'}, 'sharing needs all norms'),
        ({'sharing.layers_per_group': 5}, 'num_layers is 12, must be a multiple of .* 5'),
        ({'sharing.groups': 13}, 'num_layers is 12, must be .* for each of 13 sharing.groups'),
    ],
)
def test_values_of_shared_layers_that_do_not_fit_together_are_errors(changes, message):
    albert = architectures.build('albert', num_layers=12)
    with pytest.raises(UserError, match=message):
        albert.changed(changes)


def test_an_unknown_dtype_is_an_error():
    with pytest.raises(UserError, match="'float16'; .*known: bfloat16, float32"):
        Compute(dtype='float16')


@pytest.mark.parametrize('value', [float('nan'), float('inf'), -1.0, 0.0])
@pytest.mark.parametrize('name', ['layer_norm_eps', 'initializer_range', 'attention.theta'])
def test_numbers_that_no_model_can_have_are_refused(name, value):
    architecture = architectures.build('modernbert_base', vocab_size=8, num_layers=2)
    with pytest.raises(UserError, match=r'(eps|range|theta) is .*, must be above 0 and finite'):
        architecture.changed({name: value})
