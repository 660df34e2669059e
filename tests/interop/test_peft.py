"""Tuned models beside peft: outputs, gradients, and folders in both directions."""

import dataclasses
import json
import os
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import huggingface, loading, peft_folder, pretrained, tuned
from bert_jax.models import architectures, tuning
from bert_jax.models.architecture import Compute
from bert_jax.models.tuning_method import ADDED

os.environ.setdefault('USE_TF', '0')
torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')
peft = pytest.importorskip('peft')

SIZES = dict(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=20,
    num_labels=3,
    initializer_range=0.2,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
# Family → targets of LoRA and of IA3. peft has defaults for some families only.
FAMILIES = {
    'bert': (['query', 'value'], ['key', 'value']),
    'roberta': (['query', 'value'], ['key', 'value']),
    'electra': (['query', 'value'], ['key', 'value']),
    'albert': (['query', 'value'], ['key', 'value']),
    'deberta-v2': (['query_proj', 'value_proj'], ['key_proj', 'value_proj']),
    'distilbert': (['q_lin', 'v_lin'], ['k_lin', 'v_lin']),
}
FEEDFORWARD = {'albert': r'.*ffn_output', 'distilbert': r'.*lin2'}
QUICK = [('bert', 'lora'), ('deberta-v2', 'ia3'), ('albert', 'lora')]
IDS = np.random.default_rng(0).integers(5, 50, (2, 10))
MASK = (np.arange(10) < np.array([[10], [7]])).astype(np.int64)


def config_of(family):
    extra = {'albert': {'embedding_size': 8}, 'electra': {'embedding_size': 8}}.get(family, {})
    if family == 'deberta-v2':
        extra = {'relative_attention': True, 'pos_att_type': ['p2c', 'c2p'], 'position_buckets': 6}
        extra |= {'share_att_key': True, 'norm_rel_ebd': 'layer_norm', 'pooler_hidden_size': 16}
    if family == 'distilbert':
        extra = {'dim': 16, 'n_layers': 2, 'n_heads': 2, 'hidden_dim': 24, 'dropout': 0.0}
        extra |= {'attention_dropout': 0.0, 'seq_classif_dropout': 0.0}
    return transformers.AutoConfig.for_model(family, **SIZES | extra)


def settings_of(family, kind, **more):
    lora, ia3 = FAMILIES[family]
    if kind == 'lora':
        more |= dict(r=3, lora_alpha=5, init_lora_weights=False)
        return peft.LoraConfig(task_type='SEQ_CLS', target_modules=lora, **more)
    inner = FEEDFORWARD.get(family, r'.*\d+\.output\.dense')
    names = '|'.join(rf'.*\.{name}' for name in ia3)
    return peft.IA3Config(
        task_type='SEQ_CLS',
        target_modules=rf'{names}|{inner}',
        feedforward_modules=inner,
    )


CASES = [
    pytest.param((family, kind), marks=() if (family, kind) in QUICK else pytest.mark.slow)
    for family in FAMILIES
    for kind in ('lora', 'ia3')
]


@pytest.fixture(params=CASES, ids=lambda case: '-'.join(case))
def theirs(request, tmp_path):
    """A folder of peft with random parameters, its model and its base."""
    family, kind = request.param
    return kind, tmp_path, write_random(tmp_path, family, settings_of(family, kind))


def write_random(folder, family, settings):
    """Write a folder of peft with random parameters, and its base; return the model."""
    torch.manual_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_config(config_of(family)).eval()
    model.save_pretrained(folder / 'base')
    model.name_or_path = str(folder / 'base')
    settings.base_model_name_or_path = str(folder / 'base')
    model = peft.get_peft_model(model, settings).eval()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            mean = float('ia3' in name)
            torch.nn.init.normal_(parameter, mean, 0.3)
    model.save_pretrained(folder / 'tuned')
    return model


def logits_of(model, ids=IDS):
    found = pretrained.outputs(
        model.architecture, Compute(), model.params, ids.astype(np.int32), MASK.astype(np.int32)
    )
    return found['sequence_classification_logits']


def test_outputs_gradients_and_folders_agree(theirs):
    kind, folder, model = theirs
    ours = loading.load_any(folder / 'tuned')
    assert ours.architecture.tuning.method == kind
    ids, mask = torch.tensor(IDS), torch.tensor(MASK)
    expected = model(input_ids=ids, attention_mask=mask).logits
    np.testing.assert_allclose(logits_of(ours), expected.detach(), atol=1e-5)

    weights = np.random.default_rng(1).normal(size=(2, 3)).astype(np.float32)
    (expected * torch.tensor(weights)).sum().backward()
    params = jax.tree.map(jnp.asarray, ours.params)
    gradients = jax.grad(
        lambda params: jnp.sum(logits_of(dataclasses.replace(ours, params=params)) * weights)
    )(params)
    with torch.no_grad():  # the reader of folders brings their gradients into our layout
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.copy_(parameter.grad)
    model.save_pretrained(folder / 'gradients')
    expected_gradients = tree_paths.flatten(loading.load_any(folder / 'gradients').params)
    found = tree_paths.flatten(gradients)
    head = 'sequence_classification/head/output'
    trained = [name for name in found if ADDED in name.split('/') or name.startswith(head)]
    assert len(trained) > 4
    for name in trained:
        np.testing.assert_allclose(
            found[name], expected_gradients[name], atol=1e-5, rtol=1e-4, err_msg=name
        )

    np.testing.assert_allclose(
        rewritten(ours, folder)(input_ids=ids, attention_mask=mask).logits.detach(),
        expected.detach(),
        atol=1e-6,
    )


def rewritten(ours, folder):
    """Return the model that peft opens from the folder that we write."""
    base, path = loading.load_any(folder / 'base'), str(folder / 'base')
    ours = dataclasses.replace(ours, metadata={'base': tuned.describe_base(path, base)})
    peft_folder.write(ours, tree_paths.flatten(base.params), folder / 'written')
    model = transformers.AutoModelForSequenceClassification.from_pretrained(path)
    return peft.PeftModel.from_pretrained(model, folder / 'written').eval()


@pytest.mark.parametrize(
    'family', ['bert', *(pytest.param(f, marks=pytest.mark.slow) for f in ('albert', 'deberta-v2'))]
)
def test_a_trained_pooler_is_carried_both_ways(family, tmp_path):
    model = write_random(tmp_path, family, settings_of(family, 'lora', modules_to_save=['pooler']))
    ours = loading.load_any(tmp_path / 'tuned')
    inputs = dict(input_ids=torch.tensor(IDS), attention_mask=torch.tensor(MASK))
    expected = model(**inputs).logits.detach()
    np.testing.assert_allclose(logits_of(ours), expected, atol=1e-5)
    again = rewritten(ours, tmp_path)
    np.testing.assert_allclose(again(**inputs).logits.detach(), expected, atol=1e-6)


def test_merged_outputs_equal_unmerged_ones(theirs):
    _, folder, _ = theirs
    ours = loading.load_any(folder / 'tuned')
    merged = tuned.merge(ours)
    assert merged.architecture.tuning is None
    np.testing.assert_allclose(logits_of(merged), logits_of(ours), atol=1e-5)
    huggingface.save(merged, folder / 'merged')
    np.testing.assert_allclose(
        logits_of(loading.load_any(folder / 'merged')), logits_of(ours), atol=1e-5
    )


@pytest.mark.parametrize('theirs', [('bert', 'lora')], indirect=True, ids=['bert'])
def test_a_folder_in_a_bucket_finds_its_base_there(theirs, buckets):
    _, folder, _ = theirs
    for name in ('base', 'tuned'):
        shutil.copytree(folder / name, buckets / 'bucket' / name)
    expected = loading.load_any(folder / 'tuned').params
    shutil.rmtree(folder / 'base')
    path = buckets / 'bucket/tuned/adapter_config.json'
    settings = json.loads(path.read_text())
    for base in ('gs://bucket/base', '../base'):
        path.write_text(json.dumps(settings | {'base_model_name_or_path': base}))
        found = loading.load_any('gs://bucket/tuned').params
        jax.tree.map(np.testing.assert_array_equal, found, expected)


REFUSED = {
    'method': ({'peft_type': 'PREFIX_TUNING'}, "peft_type is 'PREFIX_TUNING'; supported: LORA"),
    'setting': ({'use_dora': True}, 'use_dora is True, which is not supported'),
    'base': ({'base_model_name_or_path': 'bert-base-uncased'}, 'which is not a folder; download'),
}


@pytest.mark.parametrize('mistake', REFUSED)
@pytest.mark.parametrize('theirs', [('bert', 'lora')], indirect=True, ids=['bert'])
def test_what_is_not_supported_is_one_clear_line(mistake, theirs):
    _, folder, _ = theirs
    path = folder / 'tuned/adapter_config.json'
    changes, message = REFUSED[mistake]
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UserError, match=message) as refused:
        loading.load_any(folder / 'tuned')
    assert '\n' not in str(refused.value)


@pytest.mark.parametrize('theirs', [('bert', 'lora')], indirect=True, ids=['bert'])
def test_a_damaged_weight_file_is_one_clear_line(theirs):
    _, folder, _ = theirs
    (folder / 'tuned/adapter_model.safetensors').write_bytes(b'\xff' * 100)
    with pytest.raises(UserError, match='adapter_model.safetensors is damaged'):
        loading.load_any(folder / 'tuned')


def test_a_masked_language_model_is_not_written(tmp_path):
    architecture = dataclasses.replace(
        architectures.build('bert_tiny'), tuning=tuning.build('lora', {})
    )
    params, metadata = {'encoder': {}, 'mlm': {}}, {'base': {'path': 'base'}}
    model = pretrained.Pretrained('bert', architecture, params, metadata=metadata)
    with pytest.raises(UserError, match='cannot hold the head mlm; export with --merge instead'):
        peft_folder.write(model, {}, tmp_path / 'out')


def test_only_lora_and_ia3_are_written(tmp_path):
    architecture = dataclasses.replace(
        architectures.build('bert_tiny'), tuning=tuning.build('prefix', {})
    )
    model = pretrained.Pretrained('bert', architecture, {})
    with pytest.raises(UserError, match='lora and ia3, not transfer.method=prefix'):
        peft_folder.write(model, {}, tmp_path / 'out')
