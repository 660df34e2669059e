"""The decoder of encoder–decoders: cached decoding, scan, packing, what each token depends on."""

import dataclasses

import jax
import numpy as np
import pytest
from flax import linen as nn

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.models import architectures
from bert_jax.models.architecture import Architecture, Compute
from bert_jax.models.architecture_parts import DecoderStack
from bert_jax.models.cache import Cache
from bert_jax.models.model import Model
from bert_jax.models.parameters import stack_layers
from bert_jax.models.rows import Rows
from bert_jax.models.tuning.lora import Lora
from bert_jax.training.transfer import Transfer
from bert_jax.types import Tree
from tests.random_parameters import random_parameters

SIZES = dict(
    vocab_size=50,
    hidden_size=16,
    num_layers=2,
    num_heads=2,
    intermediate_size=24,
    hidden_dropout=0.0,
    attention_dropout=0.0,
)
KINDS = {
    'bart': dict(decoder=DecoderStack(3), max_position_embeddings=18),
    't5': dict(decoder=DecoderStack(3, 'pad'), size_per_head=10, max_position_embeddings=16),
}
rng = np.random.default_rng(0)
SOURCE, TARGET = rng.integers(5, 50, (2, 9)), rng.integers(5, 50, (2, 6))
MASK = (np.arange(9) < [[9], [6]]).astype(np.int32)
ROWS = Rows(SOURCE, MASK, target=Rows(TARGET, np.ones_like(TARGET)))


@dataclasses.dataclass
class Small:
    """A small model with parameters that are far from their initial scale."""

    model: Model
    params: Tree

    def __call__(self, rows: Rows, *arguments: object, **options: object) -> Tree:
        return self.model.apply({'params': self.params}, rows, *arguments, **options)


@pytest.fixture(scope='module', params=KINDS)
def small(request: pytest.FixtureRequest) -> Small:
    architecture = architectures.build(request.param, **SIZES | KINDS[request.param])
    model = Model(architecture, Compute(), {'seq2seq': {}})
    return Small(model, random_parameters(model, ROWS, deviation=0.2))


@pytest.fixture(scope='module')
def logits(small: Small) -> np.ndarray:
    return np.asarray(small(ROWS).heads['seq2seq'])[..., :50]


def test_cached_decoding_equals_the_whole_target(small: Small, logits: np.ndarray) -> None:
    """Whatever the parts in which the target is read, and with two beams per source."""
    memory = small(ROWS, method='memory')
    beams = np.repeat(TARGET, 2, axis=0)
    cache = Cache.empty(small.model.architecture.of_decoder, Compute(), 4, 8)
    parts = []
    for part in (slice(0, 3), slice(3, 4), slice(4, 6)):
        rows = Rows(beams[:, part], np.ones_like(beams[:, part]), cache=cache)
        output = small(rows, memory, method='decode')
        cache = output.decoder.cache
        parts.append(output.heads['seq2seq'][..., :50])
    found = np.concatenate(parts, axis=1)
    assert np.abs(logits).max() > 1
    np.testing.assert_allclose(found, np.repeat(logits, 2, axis=0), atol=1e-4, rtol=1e-5)


def test_scanned_layers_equal_separate_layers(small: Small, logits: np.ndarray) -> None:
    params = dict(small.params)
    params |= {part: stack_layers(params[part]) for part in ('encoder', 'decoder')}
    model = dataclasses.replace(small.model, compute=Compute(scan_layers=True, remat=True))
    output = Small(model, params)(ROWS)
    found = output.heads['seq2seq'][..., :50]
    np.testing.assert_allclose(found, logits, atol=1e-4, rtol=1e-5)


def test_a_token_depends_on_its_source_and_on_earlier_tokens_only(
    small: Small, logits: np.ndarray
) -> None:
    target = TARGET.copy()
    target[:, 4] += 1
    source = np.where(MASK > 0, SOURCE, 7)
    changed = ROWS.replace(input_ids_BT=source, target=Rows(target, np.ones_like(target)))
    found = small(changed).heads['seq2seq'][..., :50]
    np.testing.assert_allclose(found[:, :4], logits[:, :4], atol=1e-4)
    assert np.abs(found[:, 4:] - logits[:, 4:]).max() > 0.1
    other = small(ROWS.replace(input_ids_BT=SOURCE[::-1])).heads['seq2seq'][..., :50]
    assert np.abs(other[0, 0] - logits[0, 0]).max() > 0.1


def test_packed_sequences_do_not_attend_to_each_other(small: Small, logits: np.ndarray) -> None:
    """Two sources and their targets in one row, told apart by segment ids."""
    source = np.concatenate([SOURCE[0], SOURCE[1, :6]])[None]
    segments = np.repeat([0, 1], [9, 6])[None]
    target_segments = np.repeat([0, 1], 6)[None]
    target = Rows(TARGET.reshape(1, -1), np.ones((1, 12), np.int32), segment_ids_BT=target_segments)
    rows = Rows(source, np.ones_like(source), segment_ids_BT=segments, target=target)
    found = small(rows).heads['seq2seq'][..., :50].reshape(2, 6, -1)
    np.testing.assert_allclose(found, logits, atol=1e-4, rtol=1e-5)


def test_without_a_target_heads_read_the_encoder(small: Small) -> None:
    output = small(ROWS.replace(target=None))
    assert output.decoder is None
    assert output.heads['seq2seq'].shape[1] == SOURCE.shape[1]
    assert small(ROWS).head_rows.input_ids_BT.shape == TARGET.shape


def test_architecture_survives_json(small: Small) -> None:
    architecture = small.model.architecture
    assert Architecture.from_json(dataclasses.asdict(architecture)) == architecture


def test_parts_that_a_decoder_cannot_have_are_refused() -> None:
    with pytest.raises(UserError, match='a model with a decoder cannot have head_states mix'):
        architectures.build('bart', **SIZES, head_states='mix')


def test_distances_from_the_heads_run_through_decoder_and_encoder(small: Small) -> None:
    """Layer-wise decay: the decoder is nearer to the heads than the encoder."""
    stacked = dict(small.params)
    stacked |= {part: stack_layers(stacked[part]) for part in ('encoder', 'decoder')}
    for params in (small.params, stacked):
        chosen = Transfer('last:4').select(params)
        count = {part: len(jax.tree.leaves(chosen[part])) for part in ('encoder', 'decoder')}
        assert count['decoder'] == len(jax.tree.leaves(params['decoder']))  # 3 layers
        assert 0 < count['encoder'] < len(jax.tree.leaves(params['encoder'])) or params is stacked
    assert Transfer('last:4').num_trained(stacked) == Transfer('last:4').num_trained(small.params)
    nearest = Transfer('last:3').select(small.params)['encoder']
    assert not jax.tree.leaves({name: nearest[name] for name in nearest if 'norm' not in name})


def test_low_rank_updates_reach_the_attention_to_the_encoder(small: Small) -> None:
    architecture = dataclasses.replace(small.model.architecture, tuning=Lora())
    model = Model(architecture, Compute(), {'seq2seq': {}})
    shapes = tree_paths.flatten(jax.eval_shape(model.init, jax.random.key(0), ROWS)['params'])
    added = {name.rpartition('/tuning/')[0] for name in shapes if '/tuning/' in name}
    assert {'decoder/layers_0/cross_attention/query', 'encoder/layers_1/attention/value'} <= added


def test_initial_values_of_t5_depend_on_the_number_of_inputs() -> None:
    """Of google-research/text-to-text-transfer-transformer; queries also carry 1/√K."""
    sizes = dict(hidden_size=64, num_layers=1, num_heads=4, intermediate_size=256, vocab_size=500)
    architecture = architectures.build(
        't5', **sizes, size_per_head=32, decoder=DecoderStack(1, 'pad')
    )
    model = Model(architecture, Compute(), {'seq2seq': {}})
    params = nn.unbox(jax.jit(model.init)(jax.random.key(0), ROWS)['params'])
    found = {name: float(leaf.std()) for name, leaf in tree_paths.flatten(params).items()}
    layer = 'decoder/layers_0'
    expected = {
        'encoder/embeddings/token': (500 / 512) ** 0.5,  # the other rows are 0
        f'{layer}/attention/query/kernel': (64 * 32) ** -0.5,
        f'{layer}/cross_attention/key/kernel': 64**-0.5,
        f'{layer}/cross_attention/output/kernel': (4 * 32) ** -0.5,
        f'{layer}/feedforward/input/kernel': 64**-0.5,
        f'{layer}/feedforward/output/kernel': 256**-0.5,
        'seq2seq/head/decoder': 64**-0.5,
    }
    for name, deviation in expected.items():
        assert found[name] == pytest.approx(deviation, rel=0.05), name


@pytest.mark.parametrize(
    'changes',
    [
        {'feedforward_dropout': 0.5},
        {'attention_dropout': 0.5},
        {'hidden_dropout': 0.5},
    ],
)
def test_dropout_is_a_function_of_the_seeds(changes: dict[str, object]) -> None:
    architecture = architectures.build('t5', **SIZES | KINDS['t5'] | changes)
    model = Model(architecture, Compute(), {'seq2seq': {}})
    params = nn.unbox(jax.jit(model.init)(jax.random.key(0), ROWS)['params'])
    run = jax.jit(lambda seeds: Small(model, params)(ROWS, seeds).decoder.hidden_BTD)
    one, again, other = (run(np.array(seeds, np.uint32)) for seeds in ([1, 2], [1, 2], [3, 2]))
    plain = Small(model, params)(ROWS).decoder.hidden_BTD
    np.testing.assert_array_equal(one, again)
    np.testing.assert_array_equal(one[1], other[1])  # of the same example
    assert np.abs(one[0] - other[0]).max() > 1e-3
    assert np.abs(one - plain).max() > 1e-3


def test_padding_of_bart_has_positions_like_a_token(small: Small) -> None:
    """As in transformers; RoBERTa counts tokens only."""
    left = ROWS.replace(attention_mask_BT=MASK[:, ::-1].copy(), target=None)
    same = ROWS.replace(attention_mask_BT=np.ones_like(MASK), target=None)
    embedded = [small(rows, all_hidden=True).states.all_hidden_LBTD[0] for rows in (left, same)]
    np.testing.assert_array_equal(*embedded)
