"""Permutation language modeling agrees with XLNetLMHeadModel in both streams and all gradients.

The masks of transformers come from the rule of the original code, written out for each pair of
positions.
"""

import jax
import numpy as np
import pytest
import torch
import transformers
from flax import linen as nn

from bert_jax import tree_paths
from bert_jax.interop import conversion, state_dict_map
from bert_jax.interop.families import FAMILIES
from bert_jax.loaded import loaded_model
from bert_jax.models.architecture import Compute
from bert_jax.models.parameters import stack_layers, unstack_layers
from bert_jax.models.rows import Rows
from bert_jax.objectives.corruption import Vocabulary
from bert_jax.objectives.plm import PermutedText
from bert_jax.objectives.spaced_ngrams import SpacedNgrams
from tests.interop import published
from tests.parity.agreement import agree, agree_trees

LENGTH, PREDICTIONS, SPECIAL = 26, 5, (1, 2, 3)
CONFIG = dict(vocab_size=97, d_model=24, n_layer=2, n_head=3, d_inner=40, ff_activation='gelu_new')
VOCABULARY = Vocabulary(
    -1,
    0,
    (0, *SPECIAL),
    np.ones(97, np.int64),
    np.arange(97) % 3 > 0,  # two of three start a word
)
CORRUPTION = PermutedText(VOCABULARY, SpacedNgrams(0.2, 3), {LENGTH: PREDICTIONS}, block_size=10)


def clean_rows():
    """Three rows: [A 1 B 1 2] with padding after, before and without it."""
    rng = np.random.default_rng(0)
    ids = rng.integers(4, 97, (3, LENGTH)).astype(np.int32)
    mask, types = np.ones_like(ids), np.zeros_like(ids)
    for row, (start, stop) in enumerate([(0, 20), (4, LENGTH), (0, LENGTH)]):
        middle = (start + stop) // 2
        mask[row, :start] = mask[row, stop:] = 0
        ids[row, [middle, stop - 2]], ids[row, stop - 1] = 1, 2
        types[row, middle + 1 : stop] = 1
        types[row, stop - 1] = 2
    return Rows(ids * mask, mask, types * mask)


def hidden_pairs(ranks_T, targets, special_T):
    """perm_mask: 1 where position i must not see position j (_local_perm of the original)."""
    mask = np.zeros((len(ranks_T), len(ranks_T)), np.float32)
    for i in range(len(ranks_T)):
        for j in range(len(ranks_T)):
            is_context = not special_T[j] and j not in targets
            if i in targets:  # not itself: the content stream adds this in transformers
                is_earlier = ranks_T[j] < ranks_T[i]
            else:
                is_earlier = special_T[i] and ranks_T[j] <= ranks_T[i]
            mask[i, j] = not (is_context or is_earlier)
    return mask


@pytest.fixture(scope='module')
def model():
    made = transformers.XLNetLMHeadModel(transformers.XLNetConfig(**CONFIG)).eval()
    published.randomize(made, 3, 0.2)
    return made


@pytest.fixture(scope='module')
def rows():
    return jax.device_get(jax.jit(CORRUPTION)(jax.random.split(jax.random.key(5), 3), clean_rows()))


@pytest.fixture(scope='module')
def factors():
    rng = np.random.default_rng(1)
    return rng.standard_normal((3, PREDICTIONS, 97)).astype(np.float32) / 30


@pytest.fixture(scope='module')
def theirs(model, rows, factors):
    """The states of both streams, the logits, and the gradients of their weighted sum."""
    places, _, weights = rows.targets
    special = np.isin(rows.input_ids_BT, SPECIAL) & (rows.attention_mask_BT > 0)
    perm_mask = np.stack(
        [
            hidden_pairs(rows.ranks_BT[b], set(places[b][weights[b] > 0]), special[b])
            for b in range(3)
        ]
    )
    mapping = (places[:, :, None] == np.arange(LENGTH)).astype(np.float32)
    output = model(
        input_ids=torch.tensor(rows.input_ids_BT, dtype=torch.long),
        attention_mask=torch.tensor(rows.attention_mask_BT, dtype=torch.float32),
        token_type_ids=torch.tensor(rows.token_type_ids_BT, dtype=torch.long),
        perm_mask=torch.tensor(perm_mask),
        target_mapping=torch.tensor(mapping),
        output_hidden_states=True,
    )
    (output.logits * torch.from_numpy(factors * weights[..., None])).sum().backward()
    states = [state.detach().numpy() for state in output.hidden_states]
    return states[::2], states[1::2], output.logits.detach().numpy()


@pytest.mark.parametrize('scan_layers', [False, True])
def test_streams_logits_and_gradients_agree(scan_layers, model, rows, factors, theirs):
    family = FAMILIES['xlnet']
    architecture = family.read_config(model.config.to_dict())
    named = {k: v for k, v in model.named_parameters() if k != 'lm_loss.weight'}
    state = {name: value.detach().numpy().copy() for name, value in named.items()}
    params, _ = conversion.from_state_dict(family, architecture, state, 'xlnet', ('plm',))
    compute = Compute(scan_layers=scan_layers, remat=scan_layers)
    ours_model = loaded_model.build_model(architecture, ('plm',), compute=compute)
    weights = rows.targets.weights_BP
    assert weights.sum() > 10

    @jax.jit
    @jax.grad
    def gradients_of(params):
        logits = ours_model.apply({'params': params}, rows).heads['plm'][..., :97]
        return (logits * factors * weights[..., None]).sum()

    if scan_layers:
        params = params | {'encoder': stack_layers(params['encoder'])}
    computed = jax.jit(lambda p: ours_model.apply({'params': p}, rows, all_hidden=True))(params)
    content, query, logits = theirs
    real, used = rows.attention_mask_BT > 0, weights > 0
    for number, state in enumerate(content):
        agree(computed.states.all_hidden_LBTD[number][real], state[real], f'state {number}')
    agree(computed.states.query_BPD[used], query[-1][used], 'query stream')
    agree(computed.heads['plm'][..., :97][used], logits[used], 'logits')

    gradients = gradients_of(params)
    if scan_layers:
        gradients = gradients | {'encoder': unstack_layers(gradients['encoder'])}
    places = state_dict_map.places(family.table, architecture, ('plm',), 2)
    their_gradients = {name: value.grad.numpy() for name, value in named.items()}
    agree_trees(tree_paths.flatten(gradients), state_dict_map.to_ours(places, their_gradients))


def test_a_query_depends_on_the_tokens_before_it_and_on_no_other(rows, model):
    architecture = FAMILIES['xlnet'].read_config(model.config.to_dict())
    ours = loaded_model.build_model(architecture, ('plm',))
    params = jax.tree.map(
        lambda leaf: 8 * leaf,
        nn.unbox(loaded_model.init(architecture, ('plm',), jax.random.key(0))),
    )
    run = jax.jit(lambda ids: ours.apply({'params': params}, rows.replace(input_ids_BT=ids)))
    before = run(rows.input_ids_BT).heads['plm']
    places, _, weights = rows.targets
    for b in range(3):
        for p in np.flatnonzero(weights[b]):
            is_later_T = rows.ranks_BT[b] >= rows.ranks_BT[b, places[b, p]]
            for changed_T, changes in ((is_later_T, False), (~is_later_T, True)):
                ids = rows.input_ids_BT.copy()
                ids[b, changed_T] = 50
                after = run(ids).heads['plm']
                assert (np.abs(after - before)[b, p].max() > 1e-3) == changes
                assert changes or (after[b, p] == before[b, p]).all()
