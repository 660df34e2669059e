"""Tuned models beside peft: outputs, gradients, and folders in both directions."""

import dataclasses
import json
import os
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from safetensors.numpy import load_file, save_file

from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import adapter_config, huggingface_export, loading, peft_export, peft_folder
from bert_jax.loaded import loaded_model, tuned
from bert_jax.loaded.record import Base
from bert_jax.models import architectures, tuning
from bert_jax.models.architecture import Compute
from bert_jax.models.rows import Rows

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
    if family == 'modernbert':
        extra = {'pad_token_id': 0, 'bos_token_id': 2, 'eos_token_id': 3, 'cls_token_id': 2}
        extra |= {'sep_token_id': 3, 'local_attention': 8, 'reference_compile': False}
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
ENCODED = {'input_ids': torch.tensor(IDS), 'attention_mask': torch.tensor(MASK)}


@pytest.fixture(params=CASES, ids=lambda case: '-'.join(case))
def theirs(request, tmp_path):
    """A folder of peft with random parameters, its model and its base."""
    family, kind = request.param
    return kind, tmp_path, write_random(tmp_path, family, settings_of(family, kind))


def write_random(folder, family, settings, kind='SequenceClassification', **options):
    """Write a folder of peft with random parameters, and its base; return the model.

    Args:
        kind: of the class, such as transformers.AutoModelForKIND; '' for AutoModel.
        options: of save_pretrained.
    """
    torch.manual_seed(0)
    made = getattr(transformers, f'AutoModel{"For" * bool(kind)}{kind}')
    model = made.from_config(config_of(family)).eval()
    model.save_pretrained(folder / 'base')
    model.name_or_path = str(folder / 'base')
    settings.base_model_name_or_path = str(folder / 'base')
    model = peft.get_peft_model(model, settings).eval()
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            mean = float('ia3' in name or 'magnitude' in name)
            torch.nn.init.normal_(parameter, mean, 0.3)
    model.save_pretrained(folder / 'tuned', **options)
    return model


def logits_of(model, ids=IDS, name='sequence_classification_logits'):
    found = loaded_model.outputs(
        model.architecture,
        Compute(),
        model.params,
        Rows(ids.astype(np.int32), MASK.astype(np.int32)),
    )
    return found[name]


def test_folders_are_read_and_exported(theirs):
    _, folder, model = theirs
    ours = loading.load_any(folder / 'tuned')
    np.testing.assert_allclose(logits_of(ours), model(**ENCODED).logits.detach(), atol=1e-5)
    huggingface_export.save(ours, folder / 'exported')
    np.testing.assert_allclose(
        logits_of(loading.load_any(folder / 'exported')), logits_of(ours), atol=1e-6
    )


def random_run(folder, kind):
    """A model tuned by us with random parameters; its base is in the folder `base`."""
    base = loading.load_any(folder / 'base')
    method = tuning.build(kind, {'per_layer': False})
    architecture = dataclasses.replace(base.architecture, tuning=method)
    rng, arrays = np.random.default_rng(0), tree_paths.flatten(base.params)
    for name, box in loaded_model.abstract_leaves(architecture, base.heads, 3).items():
        if name not in arrays or name.startswith('sequence_classification/head/output'):
            noise = rng.normal(0, 0.3, box.value.shape)
            arrays[name] = (noise + float(name.endswith('scale'))).astype(np.float32)
    params = traverse_util.unflatten_dict(arrays, sep='/')
    described = tuned.describe_base(str(folder / 'base'), {'encoder': base.params['encoder']})
    return dataclasses.replace(base, architecture=architecture, params=params, base=described)


def written(ours, folder):
    """The model that peft opens from the folder that we write."""
    base, path = loading.load_any(folder / 'base'), str(folder / 'base')
    peft_export.write(ours, tree_paths.flatten(base.params), folder / 'written')
    model = transformers.AutoModelForSequenceClassification.from_pretrained(path)
    return peft.PeftModel.from_pretrained(model, folder / 'written', is_trainable=True).eval()


def test_written_folders_and_gradients_agree(theirs):
    """The run that is written, and the folder that is read back, compute the same as peft."""
    kind, folder, _ = theirs
    ours = random_run(folder, kind)
    model = written(ours, folder)
    expected = model(**ENCODED).logits
    np.testing.assert_allclose(logits_of(ours), expected.detach(), atol=1e-5)
    np.testing.assert_allclose(
        logits_of(loading.load_any(folder / 'written')), logits_of(ours), atol=1e-5
    )
    weights = np.random.default_rng(1).normal(size=(2, 3)).astype(np.float32)
    (expected * torch.tensor(weights)).sum().backward()
    gradients = jax.grad(
        lambda params: jnp.sum(logits_of(dataclasses.replace(ours, params=params)) * weights)
    )(jax.tree.map(jnp.asarray, ours.params))
    # The writer of folders brings our gradients into the layout of peft.
    gradients = jax.tree.map(np.asarray, gradients)
    peft_export.write(
        dataclasses.replace(ours, params=gradients),
        tree_paths.flatten(gradients),
        folder / 'gradients',
    )
    found = load_file(folder / 'gradients' / peft_folder.WEIGHTS)
    named = {
        name.replace('.modules_to_save', '').replace('.default', ''): parameter.grad
        for name, parameter in model.named_parameters()
        if parameter.requires_grad
    }
    assert len(named) > 4
    for name, gradient in named.items():
        np.testing.assert_allclose(found[name], gradient, atol=1e-5, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    'family', ['bert', *(pytest.param(f, marks=pytest.mark.slow) for f in ('albert', 'deberta-v2'))]
)
def test_a_trained_pooler_is_carried_both_ways(family, tmp_path):
    model = write_random(tmp_path, family, settings_of(family, 'lora', modules_to_save=['pooler']))
    ours = loading.load_any(tmp_path / 'tuned')
    np.testing.assert_allclose(logits_of(ours), model(**ENCODED).logits.detach(), atol=1e-5)
    run = random_run(tmp_path, 'lora')
    arrays = tree_paths.flatten(run.params)
    pooler = {n: arrays[n] + 0.1 for n in arrays if n.startswith('encoder/pooler')}
    params = traverse_util.unflatten_dict({**arrays, **pooler}, sep='/')
    run = dataclasses.replace(run, params=params)
    again = written(run, tmp_path)(**ENCODED).logits.detach()
    np.testing.assert_allclose(again, logits_of(run), atol=1e-5)


Q = 'query'
# What is tuned: (family, kind of class, settings of LoRA).
ADAPTERS = {
    'dense': ('bert', 'SequenceClassification', {'target_modules': [Q, 'dense']}),
    'all': ('bert', 'SequenceClassification', {'target_modules': 'all-linear'}),
    'pooler': ('bert', 'SequenceClassification', {'target_modules': rf'.*({Q}|pooler\.dense)'}),
    'no_head': ('bert', '', {'target_modules': ['dense']}),
    'words': ('bert', 'MaskedLM', {'target_modules': [Q, 'dense']}),
    'tags': ('bert', 'TokenClassification', {'target_modules': [Q, 'dense']}),
    'choices': ('bert', 'MultipleChoice', {'target_modules': [Q, 'dense']}),
    'embeddings': ('bert', 'SequenceClassification', {'target_modules': [Q, 'word_embeddings']}),
    'dora': ('bert', 'SequenceClassification', {'target_modules': [Q], 'use_dora': True}),
    'biases': ('bert', 'SequenceClassification', {'target_modules': [Q], 'bias': 'all'}),
    'lora_bias': ('bert', 'SequenceClassification', {'target_modules': [Q], 'lora_bias': True}),
    'layer': (
        'bert',
        'SequenceClassification',
        {'target_modules': [Q], 'layers_to_transform': [1], 'layers_pattern': 'layer'},
    ),
    'patterns': (
        'bert',
        'SequenceClassification',
        {
            'target_modules': [Q, 'value'],
            'rank_pattern': {Q: 2},
            'alpha_pattern': {'layer.1.*value': 9},
            'use_rslora': True,
        },
    ),
    'albert': ('albert', 'SequenceClassification', {'target_modules': 'all-linear'}),
    'roberta': ('roberta', 'SequenceClassification', {'target_modules': 'all-linear'}),
    'electra': ('electra', 'SequenceClassification', {'target_modules': 'all-linear'}),
    'deberta': ('deberta-v2', 'SequenceClassification', {'target_modules': 'all-linear'}),
    'distilbert': ('distilbert', 'SequenceClassification', {'target_modules': '.*lin.*'}),
    'modernbert': ('modernbert', 'SequenceClassification', {'target_modules': 'all-linear'}),
}
TASK_TYPES = {'SequenceClassification': 'SEQ_CLS', 'TokenClassification': 'TOKEN_CLS'}
HEADS = {'MaskedLM': 'mlm', 'MultipleChoice': 'multiple_choice'} | {
    'SequenceClassification': 'sequence_classification',
    'TokenClassification': 'token_classification',
}


QUICK_ADAPTERS = ('dense', 'pooler', 'tags', 'patterns', 'embeddings', 'albert', 'modernbert')


@pytest.mark.parametrize(
    'name',
    [pytest.param(n, marks=() if n in QUICK_ADAPTERS else pytest.mark.slow) for n in ADAPTERS],
)
def test_every_adapter_is_applied(name, tmp_path):
    family, kind, settings = ADAPTERS[name]
    settings = peft.LoraConfig(
        task_type=TASK_TYPES.get(kind), r=3, lora_alpha=5, init_lora_weights=False, **settings
    )
    is_safe = name not in ('no_head', 'tags')  # the others are in adapter_model.bin
    model = write_random(tmp_path, family, settings, kind, safe_serialization=is_safe)
    inputs = ENCODED
    if kind == 'MultipleChoice':
        inputs = {name: values[None] for name, values in ENCODED.items()}
    with torch.no_grad():
        computed = model(**inputs)
    ours = loading.load_any(tmp_path / 'tuned')
    if not kind:
        assert not ours.heads
        found = logits_of(ours, name='all_hidden')[-1]
        np.testing.assert_allclose(found, computed.last_hidden_state, atol=1e-5)
        return
    found = logits_of(ours, name=f'{HEADS[kind]}_logits')
    expected = computed.logits[0] if kind == 'MultipleChoice' else computed.logits
    np.testing.assert_allclose(found, expected, atol=2e-5)


def put(name, value):
    return lambda arrays: arrays.update({f'base_model.model.bert.{name}': value})


LAYER = 'encoder.layer.1'
QUERY = f'{LAYER}.attention.self.query'
A, B = np.ones((3, 16), np.float32), np.ones((16, 3), np.float32)
ACCOUNT = {
    'module': (
        lambda arrays: [arrays.pop(name) for name in [*arrays] if QUERY in name],
        f'no arrays of bert.{QUERY}, which target_modules names',
    ),
    'half': (
        lambda arrays: arrays.pop(
            f'base_model.model.bert.{LAYER}.attention.self.query.lora_A.weight'
        ),
        'query lacks lora_A.weight',
    ),
    'other': (
        put('pooler.dense.lora_A.weight', A),
        'arrays of bert.pooler.dense, which target_modules does not name',
    ),
    'unknown': (put('head.lora_A.weight', A), 'bert.head is tuned, but is not a linear layer'),
    'weight': (put('pooler.scale', A[0]), 'no place for the weights bert.pooler.scale'),
    'norms': (
        put(f'{LAYER}.attention.self.value.lora_magnitude_vector', B[:, 0]),
        'value.lora_magnitude_vector has no place',
    ),
    'rank': (put(f'{LAYER}.attention.self.value.lora_A.weight', A[:2]), r'shapes \[2, 16\] and'),
    'nan': (put(f'{LAYER}.attention.self.value.lora_A.weight', A * np.nan), 'contains NaN'),
    'head': (lambda arrays: arrays.pop('base_model.model.classifier.bias'), None),
}


@pytest.mark.parametrize('theirs', [('bert', 'lora')], indirect=True, ids=['bert'])
def test_every_array_has_a_place_and_every_module_its_arrays(theirs):
    _, folder, _ = theirs
    path = folder / 'tuned' / peft_folder.WEIGHTS
    original = load_file(path)
    for name, (change, message) in ACCOUNT.items():
        arrays = dict(original)
        change(arrays)
        save_file(arrays, path)
        if message is None:  # the base model has this weight
            loading.load_any(folder / 'tuned')
            continue
        with pytest.raises(UserError, match=message) as refused:
            loading.load_any(folder / 'tuned')
        assert '\n' not in str(refused.value), name


def test_a_pooler_that_nobody_trained_is_refused(tmp_path):
    """transformers initializes the pooler of a classifier randomly if the base has none."""
    settings = settings_of('bert', 'lora')
    write_random(tmp_path, 'bert', settings)
    model = transformers.BertForMaskedLM(config_of('bert'))
    model.save_pretrained(tmp_path / 'base')
    with pytest.raises(UserError, match='lacks the weights bert.pooler.dense.bias'):
        loading.load_any(tmp_path / 'tuned')


def test_a_larger_vocabulary_is_read(tmp_path):
    settings = settings_of('bert', 'lora', modules_to_save=['word_embeddings'])
    write_random(tmp_path, 'bert', settings)
    path = tmp_path / 'tuned' / peft_folder.WEIGHTS
    arrays = load_file(path)
    name = 'base_model.model.bert.embeddings.word_embeddings.weight'
    arrays[name] = np.concatenate([arrays[name], arrays[name][:2]])
    save_file(arrays, path)
    ours = loading.load_any(tmp_path / 'tuned')
    assert ours.architecture.vocab_size == 52
    np.testing.assert_array_equal(ours.params['encoder']['embeddings']['token'][:52], arrays[name])


def test_embeddings_tied_to_the_decoder_are_refused(tmp_path):
    settings = peft.LoraConfig(target_modules=['query', 'word_embeddings'])
    write_random(tmp_path, 'bert', settings, 'MaskedLM')
    with pytest.raises(UserError, match='word_embeddings.weight is tuned, but not the decoder'):
        loading.load_any(tmp_path / 'tuned')


def test_the_head_of_a_folder_without_task_is_found_or_asked_for(tmp_path):
    write_random(tmp_path, 'bert', settings_of('bert', 'lora'))
    path = tmp_path / 'tuned/adapter_config.json'
    settings = json.loads(path.read_text())
    path.write_text(json.dumps(settings | {'task_type': None}))
    with pytest.raises(UserError, match='may belong to .*token_classification.*add the task_type'):
        loading.load_any(tmp_path / 'tuned')
    path.write_text(json.dumps(settings | {'task_type': 'CAUSAL_LM'}))
    with pytest.raises(UserError, match='task_type is CAUSAL_LM, but a bert model has no such'):
        loading.load_any(tmp_path / 'tuned')


VALUES = [None, 'x', '(', [], ['a'], [1], ['('], {}, {'a': 1}, {'(': 'a'}, -1, 0, 0.5, True, 10**9]


@pytest.mark.parametrize('theirs', [('bert', 'lora')], indirect=True, ids=['bert'])
def test_a_wrong_value_is_at_most_a_one_line_error(theirs):
    _, folder, _ = theirs
    settings = json.loads((folder / 'tuned/adapter_config.json').read_text())
    outcomes = []
    for key in settings:
        for value in VALUES:
            message = ''
            try:
                config = adapter_config.parse({**settings, key: value})
                config.tunes('bert.encoder.layer.1.attention.self.query')
                config.scale('bert.encoder.layer.1.attention.self.query', 3)
            except UserError as error:
                message = str(error)
            assert '\n' not in message
            outcomes.append(not message)
    assert 0.1 < np.mean(outcomes) < 0.9


def test_folders_of_the_library_adapters_are_named(tmp_path):
    config = {'config': {'architecture': 'pfeiffer'}, 'model_class': 'BertAdapterModel'}
    (tmp_path / 'adapter_config.json').write_text(json.dumps(config))
    (tmp_path / 'pytorch_adapter.bin').write_bytes(b'x')
    with pytest.raises(UserError, match=r'library adapters \(AdapterHub\), which is not supported'):
        loading.load_any(tmp_path)


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
    'setting': ({'use_qalora': True}, 'use_qalora is True, which is not supported'),
    'start': ({'init_lora_weights': 'pissa'}, "init_lora_weights is 'pissa', which changes"),
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
    params, base = {'encoder': {}, 'mlm': {}}, Base('base', 'base', ('encoder',), '')
    model = loaded_model.LoadedModel('bert', architecture, params, base=base)
    with pytest.raises(UserError, match='cannot hold the head mlm; export with --merge instead'):
        peft_export.write(model, {}, tmp_path / 'out')


def test_only_lora_and_ia3_are_written(tmp_path):
    architecture = dataclasses.replace(
        architectures.build('bert_tiny'), tuning=tuning.build('prefix', {})
    )
    model = loaded_model.LoadedModel('bert', architecture, {})
    with pytest.raises(UserError, match='lora and ia3, not transfer.method=prefix'):
        peft_export.write(model, {}, tmp_path / 'out')


@pytest.mark.parametrize(
    ('key', 'value', 'message'),
    [
        ('target_modules', '(a|b?)+c', 'may take very long'),
        ('target_modules', '.*a.*b.*c.*d.*e', 'at most 4 stars'),
        ('rank_pattern', {'(x+)*': 2}, 'may take very long'),
        ('modules_to_save', ['(a*)*'], 'may take very long'),
        ('layers_pattern', ['x' * 10_001], 'has 10,001 characters; the limit is 10,000'),
    ],
)
def test_regular_expressions_that_may_be_slow_are_refused(key, value, message):
    config = {'peft_type': 'LORA', 'r': 2, 'lora_alpha': 2, 'target_modules': ['query']}
    with pytest.raises(UserError, match=f'{key}: .*{message}'):
        adapter_config.parse(config | {key: value})


@pytest.mark.parametrize('name', ['(la)yer', 'layer|x', '(?i)layer'])
def test_names_of_layers_are_regular_expressions(name):
    config = {'peft_type': 'LORA', 'r': 2, 'lora_alpha': 2, 'target_modules': ['query']}
    parsed = adapter_config.parse(
        config | {'layers_to_transform': [1], 'layers_pattern': [name, 'layer']}
    )
    module = 'encoder.layer.1.attention.query'
    if name.startswith('(?i)'):
        with pytest.raises(UserError, match='is not a regular expression'):
            parsed.tunes(module)
    else:
        assert parsed.tunes(module)
        assert not parsed.tunes(module.replace('1', '2'))
