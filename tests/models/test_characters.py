"""Token vectors from characters: an obvious network in NumPy, spelling, and what is refused."""

import jax
import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.models import architectures, characters, tuning
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.objectives.rtd import ReplacedTokenDetection
from tests.random_parameters import random_parameters

VOCAB = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', 'a', '##ing', 'naïve', 'x' * 60)
SPELLING = characters.spell(VOCAB, 2, 3)
SIZES = dict(vocab_size=len(VOCAB), hidden_size=12, intermediate_size=10, num_layers=1)
OPTIONS = {'characters.num_filters': 128, 'characters.size': 5, 'characters.spelling': SPELLING}
ROWS = Rows(np.array([[2, 4, 5, 6, 7, 3, 0]], np.int32), np.array([[1] * 6 + [0]], np.int32))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def spelled(token):
    """50 character ids: 258, at most 48 bytes or the code of [CLS] or [SEP], 259, and 260s."""
    codes = {'[CLS]': [256], '[SEP]': [257]}.get(token, list(token.encode())[:48])
    return ([258, *codes, 259] + [260] * 50)[:50]


def obvious_vector(params, token):
    """The vector of a token, one filter and one place after the other, in float64."""
    params = {name: np.asarray(value, np.float64) for name, value in params.items()}
    vectors = params['character'][spelled(token)]
    values = []
    for width in range(1, 8):
        kernel = params[f'kernel_{width}']
        for number in range(kernel.shape[2]):
            places = [
                (vectors[first : first + width] * kernel[:, :, number]).sum()
                for first in range(50 - width + 1)
            ]
            values.append(max(0, max(places) + params[f'bias_{width}'][number]))
    x = np.array(values)
    for number in range(2):
        carry = sigmoid(x @ params[f'carry_{number}'] + params[f'carry_bias_{number}'])
        changed = x @ params[f'transform_{number}'] + params[f'transform_bias_{number}']
        x = carry * np.maximum(0, changed) + (1 - carry) * x
    return x @ params['projection'] + params['bias']


def make(**changes):
    return architectures.build('elmo_characters', **SIZES, **OPTIONS | changes)


def test_vectors_are_those_of_an_obvious_network():
    model = Model(make(), Compute())
    params = random_parameters(model, ROWS, deviation=0.1)
    output = jax.jit(lambda p: model.apply({'params': p}, ROWS, all_hidden=True))(params)
    found = output.states.all_hidden_LBTD[0, 0, :6, :6]
    own = params['encoder']['embeddings']['characters']
    expected = np.stack([obvious_vector(own, VOCAB[index]) for index in ROWS.input_ids_BT[0, :6]])
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert 'token' not in params['encoder']['embeddings']


def test_a_token_is_its_bytes_between_begin_and_end():
    ids = characters.character_ids(SPELLING, 128)
    assert ids.shape == (128, 50)
    np.testing.assert_array_equal(ids[:8], [spelled(token) for token in VOCAB])
    assert (ids[8:] == 260).all()


def test_the_published_filters_and_what_is_refused():
    published = architectures.build('elmo_characters')
    assert published.characters.filters == (32, 32, 64, 128, 256, 512, 1024)
    assert (published.embedding_width, published.intermediate_size) == (512, 4096)
    assert SPELLING not in repr(make())
    with pytest.raises(UserError, match='num_filters is 100, must be a multiple of 64'):
        make(**{'characters.num_filters': 100})
    with pytest.raises(UserError, match='no table of tokens to predict with; set prediction.tied'):
        make(**{'prediction.tied': True})
    bert = architectures.build('bert').changed({'prediction.tied': False})
    prompt = {'characters': published.characters, 'tuning': tuning.build('prompt', {})}
    with pytest.raises(UserError, match='transfer.method=prompt needs a table of tokens'):
        bert.changed(prompt)
    replaced = ReplacedTokenDetection(1.0, 1.0, 'tied', 1.0)
    with pytest.raises(UserError, match='shares the table of token embeddings'):
        replaced.make_model(make(), Compute(), {'mlm': {}, 'rtd': {}})
