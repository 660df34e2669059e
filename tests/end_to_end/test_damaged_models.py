"""A damaged file in a folder of XLNet or in a run of ELMo is one line that names the folder."""

import random
import shutil

import pytest

import bert_jax
from bert_jax import main
from bert_jax.errors import UserError
from configs import elmo
from tests.end_to_end import small
from tests.fuzz.mutation import mutate
from tests.interop import published

WAYS = {
    'emptied': lambda path, rng: path.write_bytes(b''),
    'cut': lambda path, rng: path.write_bytes(path.read_bytes()[: rng.randrange(200)]),
    'zeroed': lambda path, rng: path.write_bytes(bytes(path.stat().st_size)),
    'changed': lambda path, rng: path.write_bytes(mutate(path.read_bytes(), rng)),
    'removed': lambda path, rng: path.unlink(),
    'replaced': lambda path, rng: (path.unlink(), path.mkdir()),
}


def make_xlnet(folder):
    return published.folder(folder, 'XLNetForSequenceClassification')


def make_elmo(folder):
    config = elmo.get_config()
    own = {'model.num_heads', 'model.attention_dropout', 'data.tokenizer'}
    changes = {key: value for key, value in small.changes(folder).items() if key not in own}
    stage = {key.replace('__', '.'): value for key, value in small.ONE_STAGE.items()}
    tokens = {'data.tokenizer': 'train:wordpiece:120', 'evaluation.cloze_examples': 0}
    config.update_from_flattened_dict(changes | stage | tokens)
    main.run(config)
    return folder / 'run'


@pytest.mark.parametrize(
    ('make', 'number'),
    [
        (make_xlnet, 12),
        pytest.param(make_xlnet, 150, marks=pytest.mark.slow),
        pytest.param(make_elmo, 150, marks=pytest.mark.slow),
    ],
)
def test_a_damaged_file_is_one_line(make, number, tmp_path):
    (tmp_path / 'made').mkdir()
    folder, copy, rng = make(tmp_path / 'made'), tmp_path / 'copy', random.Random(number)
    files = [path for path in sorted(folder.rglob('*')) if path.is_file()]
    refused = 0
    for _ in range(number):
        shutil.copytree(folder, copy)
        path, way = copy / rng.choice(files).relative_to(folder), rng.choice(list(WAYS))
        WAYS[way](path, rng)
        message = ''
        try:
            bert_jax.load(copy).embed(['the ship'])
        except UserError as error:
            message = str(error)
        assert '\n' not in message
        assert not message or str(copy) in message, (way, path)
        refused += bool(message)
        shutil.rmtree(copy)
    assert refused > number / 4
