"""Loading: checkpoints of google-research/bert, made by the test, and older ones of bert_jax."""

import json
import shutil

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax import tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import huggingface, loading
from bert_jax.loaded import checksums, sentence_modules
from bert_jax.loaded.record import Usage
from tests.inference import small_runs
from tests.interop import original, published


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
    """Folders of transformers and of the original code with the same weights."""
    top = tmp_path_factory.mktemp('tf1')
    return published.folder(top / 'theirs'), original.folder(top / 'original')


def test_an_original_checkpoint_gives_the_parameters_of_transformers(folders):
    expected, loaded = huggingface.load(folders[0]), loading.load_any(folders[1])
    assert loaded.architecture == expected.architecture
    theirs_json, original_json = (
        json.loads(model.tokenizer.to_json()) for model in (expected, loaded)
    )
    # The original code splits longer words than transformers.
    assert theirs_json['model'].pop('max_input_chars_per_word') == 100
    assert original_json['model'].pop('max_input_chars_per_word') == 200
    assert original_json == theirs_json
    loaded, expected = (tree_paths.flatten(model.params) for model in (loaded, expected))
    assert loaded.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(loaded[name], expected[name], err_msg=name)


FINE_TUNED = {
    'classifier': ('BertForSequenceClassification', ('LAMB', 'LAMB_1'), 'classify'),
    'reader': ('BertForQuestionAnswering', ('AdamWeightDecayOptimizer',), 'answer'),
}


@pytest.mark.parametrize('kind', FINE_TUNED)
def test_a_fine_tuned_original_checkpoint_keeps_its_head(kind, tmp_path):
    """As run_classifier.py and run_squad.py leave it, with the variables of other optimizers."""
    name, slots, task = FINE_TUNED[kind]
    changes = {'num_labels': 3} if kind == 'classifier' else {}
    path = original.folder(tmp_path / 'tuned', name, 'model.ckpt-21', slots, **changes)
    expected = huggingface.load(tmp_path / 'tuned_source')
    loaded = loading.load_any(path, allow_missing=('^encoder/pooler/',))
    assert loaded.heads == expected.heads
    assert task in bert_jax.load(path).tasks
    ours, theirs = (tree_paths.flatten(model.params) for model in (loaded, expected))
    for part in theirs.keys() - {'encoder/pooler/kernel', 'encoder/pooler/bias'}:
        np.testing.assert_array_equal(ours[part], theirs[part], err_msg=part)
    if kind == 'classifier':
        assert loaded.labels == ('LABEL_0', 'LABEL_1', 'LABEL_2')


def test_one_of_several_original_checkpoints_is_chosen(folders, tmp_path):
    path = shutil.copytree(folders[1], tmp_path / 'original')
    for name in ('data-00000-of-00001', 'index'):
        shutil.copy(path / f'bert_model.ckpt.{name}', path / f'model.ckpt-7.{name}')
    with pytest.raises(UserError, match='bert_model.ckpt, model.ckpt-7; choose one by its path'):
        loading.load_any(path)
    assert loading.load_any(path / 'model.ckpt-7').heads == ('mlm', 'nsp')
    (path / 'checkpoint').write_text('model_checkpoint_path: "/gone/model.ckpt-7"\n')
    (path / 'bert_model.ckpt.data-00000-of-00001').unlink()
    assert loading.load_any(path).heads == ('mlm', 'nsp')


def test_folders_in_a_bucket_load_as_on_a_disk(folders, buckets):
    for folder in folders:
        shutil.copytree(folder, buckets / 'bucket' / folder.name)
        ours, theirs = (loading.load_any(path) for path in (f'gs://bucket/{folder.name}', folder))
        assert ours.architecture == theirs.architecture
        assert ours.tokenizer.to_json() == theirs.tokenizer.to_json()
        jax.tree.map(np.testing.assert_array_equal, ours.params, theirs.params)


def test_a_damaged_original_checkpoint_is_reported_in_one_line(folders, tmp_path):
    path = shutil.copytree(folders[1], tmp_path / 'original')
    (path / 'bert_model.ckpt.index').write_bytes(b'x' * 60)
    with pytest.raises(UserError, match='bert_model.ckpt cannot be read') as caught:
        loading.load_any(path)
    assert '\n' not in str(caught.value)
    (path / 'bert_model.ckpt.index').unlink()
    with pytest.raises(UserError, match='no checkpoint: expected bert_model.ckpt.index') as caught:
        loading.load_any(path)
    for text in ('{', '[]'):
        (path / 'bert_config.json').write_text(text)
        with pytest.raises(UserError, match='bert_config.json'):
            loading.load_any(path)


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'num_layers': 900}, 'arrays of 1 layers of the encoder, but its architecture has 900'),
        (
            {'hidden_size': 32},
            r'is \[16\] in arrays.json, but \[32\] by the architecture',
        ),
    ],
)
def test_a_run_whose_arrays_are_not_those_of_its_record_is_refused(changes, message, tmp_path):
    small_runs.save_run(tmp_path / 'run', 'classification')
    change_record(tmp_path / 'run', lambda record: record['architecture'].update(changes))
    with pytest.raises(UserError, match=message):
        bert_jax.load(tmp_path / 'run')


@pytest.mark.parametrize(
    ('kept', 'message'),
    [
        ({'pooling': 'median', 'similarity': 'dot'}, "kept.pooling 'median'; .*known: "),
        ({'pooling': 'mean', 'similarity': 'taxi'}, "kept.similarity 'taxi'; known: "),
    ],
)
def test_a_record_that_names_an_unknown_way_to_make_vectors_is_refused(kept, message):
    problem = {'query_prompt': '', 'document_prompt': ''}
    config = {'problem': problem, 'training': {'sequence_length': 8}}
    with pytest.raises(UserError, match=message):
        sentence_modules.of_run(Usage(task='embedding', kept=kept, config=config))


def test_a_run_that_names_an_unknown_way_to_split_words_is_refused(tmp_path):
    run = small_runs.save_run(tmp_path / 'run', 'tagging', kept={'splitter': 'syllables'})
    with pytest.raises(UserError, match="kept.splitter 'syllables'; known: "):
        bert_jax.load(run)


def change_record(run, change):
    """Change the metadata of a run, whose checkpoint stays complete by its digests."""
    checkpoint = run / 'checkpoints/1'
    record = json.loads((checkpoint / 'metadata.json').read_text())
    change(record)
    (checkpoint / 'metadata.json').write_text(json.dumps(record))
    checksums.write(checkpoint)
