"""TensorFlow Datasets on disk as text sources."""

import json
import shutil

import pytest

from bert_jax import tensorflow_import
from bert_jax.errors import UserError
from bert_jax.text.sources import open_source, parse_source
from tests.text.sources.reading import read, texts

MARKERS = (
    '\n_START_ARTICLE_\n{0}\n_START_PARAGRAPH_\n{0} is first._NEWLINE_It goes on.\n'
    '_START_SECTION_\nHistory\n_START_PARAGRAPH_\nIt is old.'
)


@pytest.fixture(scope='module')
def tfds_folder(tmp_path_factory):
    """TFDS datasets: plain texts, texts with the markers of wiki40b, and labeled texts."""
    tf, tfds = tensorflow_import.tensorflow(), tensorflow_import.tensorflow_datasets()
    folder = tmp_path_factory.mktemp('tensorflow_datasets')

    def store(name, config, split_texts):
        tfds.dataset_builders.store_as_tfds_dataset(
            name=name,
            version='1.0.0',
            data_dir=folder,
            config=config,
            split_datasets={
                split: tf.data.Dataset.from_tensor_slices({'text': found})
                for split, found in split_texts.items()
            },
            features=tfds.features.FeaturesDict({'text': tfds.features.Text()}),
        )

    tfds.dataset_builders.store_as_tfds_dataset(
        name='numbers',
        version='1.0.0',
        data_dir=folder,
        split_datasets={'train': tf.data.Dataset.from_tensor_slices({'label': [1], 'body': ['a']})},
        features=tfds.features.FeaturesDict(
            {'label': tfds.features.ClassLabel(num_classes=2), 'body': tfds.features.Text()}
        ),
    )
    store('plain', None, {'train': [b'One.', b'Caf\xe9.', b''], 'test': [b'Three.']})
    store('wiki', 'fr', {'train': [MARKERS.format(name).encode() for name in ('Rome', 'Été')]})
    return folder


def test_plain_texts_are_documents(tfds_folder):
    source, documents = read(f'tfds:plain;data_dir={tfds_folder}')
    assert sorted(d.text for d in documents) == ['Caf\ufffd.', 'One.']
    assert source.report['empty_documents'] == source.report['undecodable_bytes'] == 1
    assert texts(f'tfds:plain:1.0.0;data_dir={tfds_folder};split=test') == ['Three.']
    (unit,) = source.units(1)
    again = parse_source(source.spec)
    assert [d.text for d in again.documents_of(unit)] == [d.text for d in documents]
    assert again.describe() == source.describe()


def test_markers_of_wiki40b_become_documents_and_paragraphs(tfds_folder, monkeypatch):
    monkeypatch.setenv('TFDS_DATA_DIR', str(tfds_folder))
    source, documents = read('tfds:wiki/fr')
    found = {document.name: document.text for document in documents}
    assert found['Rome'] == 'Rome is first.\n\nIt goes on.\n\nIt is old.'
    assert set(found) == {'Rome', 'Été'}
    assert source.report['section_titles_left_out'] == 2
    assert source.language == 'fr'


def test_a_missing_dataset_split_or_field_is_an_error(tmp_path, tfds_folder, monkeypatch):
    monkeypatch.delenv('TFDS_DATA_DIR', raising=False)
    with pytest.raises(UserError, match=r'wiki40b/en was not found in .*download=true') as caught:
        open_source(f'tfds:wiki40b/en;data_dir={tmp_path}')
    assert '\n' not in str(caught.value)
    with pytest.raises(UserError, match=r"unknown split.*'nope'; known: test, train"):
        open_source(f'tfds:plain;data_dir={tfds_folder};split=nope')
    with pytest.raises(UserError, match=r"unknown field.*'body'; known: text"):
        open_source(f'tfds:plain;data_dir={tfds_folder};field=body')
    with pytest.raises(UserError, match="field 'label' is not a text; choose .*: body") as caught:
        open_source(f'tfds:numbers;data_dir={tfds_folder};field=label')
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize('where', ['pythonClassName', 'type', 'json'])
@pytest.mark.parametrize('name', ['plain', 'wiki'])  # found by us, and by TFDS before a download
def test_a_dataset_cannot_name_a_module_to_import(where, name, tfds_folder, tmp_path, monkeypatch):
    shutil.copytree(tfds_folder, tmp_path / 'data')
    (tmp_path / 'stranger.py').write_text('raise SystemExit("imported")\n')
    monkeypatch.syspath_prepend(tmp_path)
    (path,) = (tmp_path / 'data' / name).rglob('features.json')
    features = json.loads(path.read_text())
    text = features['featuresDict']['features']['text']
    if where == 'json':
        text['jsonFeature'] = {'json': json.dumps({'type': 'stranger.Text'})}
    else:
        text[where] = 'stranger.Text'
    path.write_text(json.dumps(features))
    with pytest.raises(UserError, match=r"features\.json names the class 'stranger\.Text'"):
        open_source(f'tfds:{name};data_dir={tmp_path}/data;download=true')
