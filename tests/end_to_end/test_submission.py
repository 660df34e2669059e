"""Fine-tuning on a benchmark whose test split has no labels: predictions and the file to submit."""

import json

import numpy as np
import pytest

from bert_jax import main, tensorflow_import
from configs import finetune
from tests.tasks import small_problems


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    """A TFDS data set of a few sentences in the format of SST-2."""
    tf, tfds = tensorflow_import.tensorflow(), tensorflow_import.tensorflow_datasets()
    folder = tmp_path_factory.mktemp('tensorflow_datasets')
    sentences = ['the small ship', 'a red tram', 'nobody saw it', 'the old harbour']

    def rows(labels):
        numbers = np.arange(4, dtype=np.int32)
        columns = {'sentence': sentences, 'label': labels, 'idx': numbers}
        return tf.data.Dataset.from_tensor_slices(columns)

    tfds.dataset_builders.store_as_tfds_dataset(
        name='glue',
        config='sst2',
        version='2.0.0',
        data_dir=folder,
        split_datasets={
            'train': rows([0, 1, 0, 1]),
            'validation': rows([0, 1, 0, 1]),
            'test': rows([-1] * 4),
        },
        features=tfds.features.FeaturesDict(
            {
                'sentence': tfds.features.Text(),
                'label': tfds.features.ClassLabel(names=['negative', 'positive']),
                'idx': np.int32,
            }
        ),
    )
    return folder


@pytest.mark.slow
def test_an_unlabeled_test_split_is_predicted_and_written_for_submission(folder, tmp_path, capsys):
    small_problems.tokenizer().save(tmp_path)
    config = finetune.get_config('sst2')
    config.workdir = str(tmp_path / 'run')
    config.data.data_dir = str(folder)
    config.data.tokenizer = str(tmp_path / 'tokenizer.json')
    config.model.update(dict(architecture='bert', hidden_size=16, num_layers=1, num_heads=2))
    config.model.update(dict(intermediate_size=16, max_position_embeddings=16))
    config.training.update(dict(epochs=0.0, steps=2, batch_size=4, sequence_length=16))
    main.run(config)
    out = tmp_path / 'run' / 'test'
    records = [json.loads(line) for line in (out / 'predictions.jsonl').read_text().splitlines()]
    assert sorted(record['id'] for record in records) == ['0', '1', '2', '3']
    assert all(record['gold'] is None for record in records)
    by_id = {record['id']: record['predicted'] for record in records}
    lines = [f'{i}\t{["negative", "positive"].index(by_id[str(i)])}' for i in range(4)]
    assert (out / 'SST-2.tsv').read_text().splitlines() == ['index\tprediction', *lines]
    assert sorted(path.name for path in out.iterdir()) == ['SST-2.tsv', 'predictions.jsonl']
    assert (tmp_path / 'run' / 'dev' / 'predictions.jsonl').exists()
    assert 'test: no labels, predictions only' in capsys.readouterr().out
