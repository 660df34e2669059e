"""Parameter-efficient tuning of an encoder–decoder that writes text, from the command line."""

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax import export, main, tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import loading
from bert_jax.loaded import checkpoint_arrays, tuned
from bert_jax.models import architectures
from bert_jax.models.architecture_parts import DecoderStack
from bert_jax.models.architectures.bart import BART
from bert_jax.tasks import initialization
from bert_jax.training.run import NO_HOOKS, Hooks
from configs import finetune
from tests.end_to_end.test_generation_tasks import keys, lines_of, train


class Stopped(Exception):
    """Stands for the end of the process."""


SMALL = {'transfer.length': 2, 'transfer.bottleneck': 3, 'training.steps': 10}


@pytest.fixture(scope='module')
def base(tmp_path_factory):
    """The run of a small BART."""
    folder = tmp_path_factory.mktemp('base')
    small = BART.resized(decoder=DecoderStack(1))
    sizes = {'model__architecture': 'small_bart', 'model__max_position_embeddings': 40}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(architectures.BUILDERS, 'small_bart', small)
        train(folder, longest=2, training__steps=10, **sizes)
    return folder / 'run'


def tuning_keys(folder, base, method='mam', **more):
    given = {
        key: value
        for key, value in keys(folder, longest=2).items()
        if not key.startswith('model.') and key != 'data.tokenizer'
    }
    own = {'init_from': str(base), 'transfer.method': method}
    return given | SMALL | own | {key.replace('__', '.'): more[key] for key in more}


def tune(*arguments, hooks=NO_HOOKS, **more):
    config = finetune.get_config('generation').unlock()
    config.update_from_flattened_dict(tuning_keys(*arguments, **more))
    return main.run(config.lock(), hooks=hooks)


def test_positions_of_bart_start_at_2_whatever_the_padding_token(base):
    """So that transformers, where they always do, can open the exported model."""
    model = loading.load_any(base)
    assert model.tokenizer.pad_id == 0
    assert model.architecture.positions.first == 2


@pytest.fixture(scope='module')
def mam(base, tmp_path_factory):
    """A run that tunes the base model with a prefix and parallel adapters."""
    folder = tmp_path_factory.mktemp('mam')
    tune(folder, base)
    return folder / 'run'


def test_encoder_decoder_and_prediction_head_are_frozen(base, mam):
    state = tree_paths.flatten(checkpoint_arrays.load(mam).state)
    trained = {name.removeprefix('params/') for name in state if name.startswith('params/')}
    attentions = {
        f'{layer}/tuning/{part}'
        for layer in (
            'encoder/layers_0/attention',
            'decoder/layers_0/attention',
            'decoder/layers_0/cross_attention',
        )
        for part in ('keys', 'values')
    }
    adapters = {
        f'{stack}/layers_0/tuning/adapter/{part}'
        for stack in ('encoder', 'decoder')
        for part in ('down', 'down_bias', 'up', 'up_bias')
    }
    assert trained == attentions | adapters
    before = tree_paths.flatten(loading.load_any(base).params)
    after = tree_paths.flatten(loading.load_any(mam).params)
    assert after.keys() == before.keys() | trained
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array, err_msg=name)
    assert np.any(after['decoder/layers_0/tuning/adapter/up'])


def test_a_tuned_model_writes_what_its_evaluation_wrote(mam):
    records = lines_of(mam / 'dev/predictions.jsonl')
    answers = bert_jax.load(str(mam)).write([one['texts'][0] for one in records])
    assert [one['written'] for one in answers] == [one['written'] for one in records]
    beams = bert_jax.load(str(mam)).with_settings(beams=2).write([records[0]['texts'][0]])
    assert np.isfinite(beams[0]['log_probability'])


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({}, 'tuned with transfer.method=mam, .* use the folder of the run'),
        ({'merge': True}, 'transfer.method=mam cannot be merged: the architecture has no place'),
        ({'format': 'peft'}, 'peft cannot hold a model with a decoder'),
    ],
)
def test_exports_that_cannot_hold_added_parameters_are_refused(mam, tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        export.export(export.Request(model=str(mam), output=str(tmp_path / 'out'), **options))


def test_a_decoder_without_training_is_not_frozen():
    config = finetune.get_config('generation').unlock()
    config.init_from, config.init_decoder, config.transfer.method = 'bert', 'encoder', 'mam'
    with pytest.raises(UserError, match='a decoder that transfer.method=mam would freeze untrain'):
        initialization.load_weights(config)


@pytest.mark.parametrize('part', ['encoder', 'decoder', 'seq2seq'])
def test_another_model_is_not_the_base_model(base, part):
    params = loading.load_any(base).params
    described = tuned.describe_base(str(base), params)
    assert {*described.parts} == {'encoder', 'decoder', 'seq2seq'}
    changed = {**params, part: jax.tree.map(lambda leaf: leaf + 1e-3, params[part])}
    assert tuned.describe_base(str(base), changed).sha256 != described.sha256


def test_a_classifier_on_a_tuned_decoder_answers(base, tmp_path):
    """Its head reads the decoder; the prediction head is not among the frozen parts."""
    config = finetune.get_config('sample_sentiment').unlock()
    own = {'init_from': str(base), 'transfer.method': 'mam', 'workdir': str(tmp_path / 'run')}
    steps = {'training.epochs': 0.0, 'training.steps': 2, 'data.dev': config.data.train}
    config.update_from_flattened_dict(SMALL | own | steps)
    main.run(config.lock())
    metadata = checkpoint_arrays.load(tmp_path / 'run').metadata
    assert metadata['base']['parts'] == ['encoder', 'decoder']
    model = loading.load_any(tmp_path / 'run')
    assert 'seq2seq' not in model.heads
    (answer,) = bert_jax.load(str(tmp_path / 'run')).classify(['The food was good.'])
    assert answer['predicted'] in ('positive', 'negative')


@pytest.mark.slow
@pytest.mark.parametrize('method', ['lora', 'ia3', 'bitfit'])
def test_merged_models_are_exported_and_write_the_same(base, tmp_path, method):
    tune(tmp_path, base, method, **{'transfer__length': None, 'transfer__bottleneck': None})
    texts = [one['texts'][0] for one in lines_of(tmp_path / 'run/dev/predictions.jsonl')]
    folder = str(tmp_path / 'merged')
    export.export(export.Request(model=str(tmp_path / 'run'), output=folder, merge=True))
    own, merged = (bert_jax.load(str(tmp_path / name)) for name in ('run', 'merged'))
    assert merged.architecture.tuning is None
    expected = [one['written'] for one in own.write(texts)]
    options = dict(new_tokens=8, temperature=0)
    found = [one.text.strip() for one in merged.generate(texts, **options)]
    assert found == expected


@pytest.mark.slow  # test_tuning.py stops and resumes a tuned encoder
def test_stopped_and_resumed_bitwise(base, tmp_path, capsys):
    more = {'checkpoint__every_steps': 3, 'training__steps': 8, 'model__hidden_dropout': 0.1}

    def stop(step):
        if step == 5:
            raise Stopped

    with pytest.raises(Stopped):
        tune(tmp_path / 'killed', base, hooks=Hooks(after_step=stop), **more)
    for name in ('killed', 'whole'):
        tune(tmp_path / name, base, **more)
    assert 'resuming from step 3' in capsys.readouterr().err
    ours, theirs = (
        checkpoint_arrays.load(tmp_path / name / 'run').state for name in ('killed', 'whole')
    )
    for own, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(own, other)


@pytest.mark.slow
def test_runs_of_a_vmapped_sweep_have_the_results_of_single_runs(base, mam, tmp_path):
    tune(tmp_path, base, **{'sweep__vmap': True, 'sweep__seeds': (0, 1)})
    alone = tree_paths.flatten(loading.load_any(mam).params)
    swept = tree_paths.flatten(loading.load_any(tmp_path / 'run/seed_0').params)
    for name, array in alone.items():
        np.testing.assert_allclose(swept[name], array, atol=1e-5, err_msg=name)
