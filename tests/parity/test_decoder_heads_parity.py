"""BART classifies texts and finds answers as its classes in transformers do."""

import jax
import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from bert_jax import tree_paths
from bert_jax.interop import conversion, huggingface, huggingface_export, state_dict_map
from bert_jax.loaded import loaded_model
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from tests.parity.agreement import TOLERANCE, agree, agree_trees
from tests.parity.test_encoder_decoder_parity import CASES, Case

HEADS = {
    'sequence_classification': 'BartForSequenceClassification',
    'question_answering': 'BartForQuestionAnswering',
}
LENGTHS = [17, 11, 3]
rng = np.random.default_rng(0)
MASK = (np.arange(17) < np.array(LENGTHS)[:, None]).astype(np.int32)
IDS = np.where(MASK, rng.integers(3, 97, (3, 17)), 1)
IDS[:, 0] = 0
IDS[np.arange(3), np.array(LENGTHS) - 1] = 2
ROWS = Rows(IDS, MASK)


# Both heads read the states of the decoder; test_families.py of interop publishes both.
QUICK = ('sequence_classification',)


@pytest.fixture(
    scope='module',
    params=[pytest.param(head, marks=[pytest.mark.slow] * (head not in QUICK)) for head in HEADS],
)
def head(request):
    return request.param


@pytest.fixture(scope='module')
def case(head):
    case = Case(HEADS[head], dict(CASES['bart'].config) | {'num_labels': 3, 'pad_token_id': 1})
    bart = CASES['bart'].model.model.state_dict()
    case.model.model.load_state_dict(bart)
    return case


def run_theirs(case, head):
    """Logits, which must not be NaN at padding, and their tensor."""
    output = case.model(input_ids=torch.from_numpy(IDS), attention_mask=torch.from_numpy(MASK))
    if head == 'sequence_classification':
        return output.logits
    return torch.stack([output.start_logits, output.end_logits], dim=-1)


def test_logits_and_gradients_agree_with_transformers(case, head):
    number = 3 if head == 'sequence_classification' else 2
    params, new = conversion.from_state_dict(
        case.family, case.architecture, case.state(), head, declared=[head], num_labels=number
    )
    assert not new
    theirs = run_theirs(case, head)
    weights = np.random.default_rng(1).standard_normal(theirs.shape).astype(np.float32)
    if head == 'question_answering':
        weights *= MASK[..., None] / MASK.sum()
    case.model.zero_grad()
    (theirs * torch.from_numpy(weights)).sum().backward()

    def loss(params):
        computed = loaded_model.outputs(case.architecture, Compute(), params, ROWS)
        return (computed[f'{head}_logits'] * weights).sum(), computed

    gradients, computed = jax.jit(jax.grad(loss, has_aux=True))(params)
    found, expected = computed[f'{head}_logits'], theirs.detach().numpy()
    is_read = np.ones(3, bool) if head == 'sequence_classification' else MASK > 0
    agree(found[is_read], expected[is_read], 'logits', TOLERANCE)

    state = {
        name: leaf.grad.numpy()
        for name, leaf in case.model.named_parameters()
        if leaf.grad is not None
    }
    places = state_dict_map.places(case.family.table, case.architecture, (head,), number)
    agree_trees(gradients, state_dict_map.to_ours(places, state))


def test_folders_are_read_and_written_as_transformers_writes_them(case, head, tmp_path):
    case.model.save_pretrained(tmp_path / 'theirs')
    loaded = huggingface.load(tmp_path / 'theirs')
    assert loaded.heads == (head,)
    huggingface_export.save(loaded, tmp_path / 'ours')
    theirs, ours = (load_file(tmp_path / name / 'model.safetensors') for name in ('theirs', 'ours'))
    assert ours.keys() == theirs.keys()
    for key, array in theirs.items():
        assert array.tobytes() == ours[key].tobytes(), key
    reread = type(case.model).from_pretrained(tmp_path / 'ours', attn_implementation='eager')
    original, case.__dict__['model'] = case.model, reread
    found = run_theirs(case, head)
    case.__dict__['model'] = original
    assert torch.equal(found, run_theirs(case, head))


def test_packed_texts_have_the_classes_they_have_alone(case, head):
    params, _ = conversion.from_state_dict(
        case.family, case.architecture, case.state(), head, declared=[head], num_labels=3
    )
    if head == 'question_answering':
        pytest.skip('its states are those of the classifier')
    model = Model(case.architecture, Compute(), {head: {'num_labels': 3}})
    alone = model.apply({'params': params}, ROWS).heads[head]
    ids = np.concatenate([row[:length] for row, length in zip(IDS, LENGTHS, strict=True)])[None]
    packed = Rows(
        ids,
        np.ones_like(ids),
        segment_ids_BT=np.repeat([1, 2, 3], LENGTHS)[None],
        first_positions_BS=np.cumsum([0, *LENGTHS[:-1]])[None],
    )
    found = model.apply({'params': params}, packed).heads[head]
    np.testing.assert_allclose(found[0], alone, atol=1e-5, rtol=1e-5)
    assert tree_paths.flatten(params).keys() >= {f'{head}/head/transform/kernel'}
