"""Predictions equal those of transformers, text by text; long texts are cut into windows."""

import numpy as np
import pytest
import torch
import transformers

from bert_jax.errors import UserError
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import huggingface
from tests.interop import published

TEXTS = [
    'the ship near the storm .',
    'the cow and the barn and the field near the moon .',
    '',
    'star',
    'A Rocket , the comet and dust !',
]
SIZES = {'max_position_embeddings': 24, 'num_hidden_layers': 4}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return published.folder(tmp_path_factory.mktemp('model') / 'bert', **SIZES)


@pytest.fixture(scope='module')
def ours(folder):
    return Predictor(huggingface.load(folder), batch_tokens=400)


@pytest.fixture(scope='module')
def theirs(folder):
    model = transformers.BertForPreTraining.from_pretrained(folder).eval()
    tokenizer = transformers.BertTokenizer(str(folder / 'vocab.txt'))

    def run(text):
        with torch.no_grad():
            output = model(**tokenizer(text, return_tensors='pt'), output_hidden_states=True)
        states = torch.stack(output.hidden_states)[:, 0].numpy()
        return states, output.prediction_logits[0].softmax(-1).numpy()

    return run


def test_a_model_describes_itself(ours):
    shown = repr(ours)
    assert '4 layers × 20' in shown
    assert 'up to 24 per text' in shown
    assert 'fill_mask, embed' in shown


def agree(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * max(1, np.abs(theirs).max()))


LAYERS = {
    -1: lambda states: states[-1],
    1: lambda states: states[1],
    'sum_last_4': lambda states: states[-4:].sum(0),
    'mean_last_4': lambda states: states[-4:].mean(0),
    'concat_last_4': lambda states: np.concatenate(states[-4:], axis=-1),
    'all': lambda states: np.moveaxis(states, 0, 1),
    (2, 'mean_last_4'): lambda states: np.stack([states[2], states[-4:].mean(0)], axis=1),
}
POOLINGS = {'tokens': lambda x: x, 'mean': lambda x: x.mean(0), 'cls': lambda x: x[0]}


@pytest.mark.parametrize('layer', LAYERS)
def test_vectors_equal_those_of_transformers(ours, theirs, layer):
    for pooling, pool in POOLINGS.items():
        vectors = ours.embed(TEXTS, pooling, layer)
        for text, vector in zip(TEXTS, vectors, strict=True):
            agree(vector, pool(LAYERS[layer](theirs(text)[0])))


@pytest.mark.parametrize('layer', LAYERS)
def test_vectors_of_texts_are_one_array(ours, layer):
    for pooling in (None, 'mean', 'cls', 'max'):
        vectors = ours.embed(TEXTS, pooling, layer)
        assert (type(vectors), vectors.dtype) == (np.ndarray, np.float32)
        assert ours.embed([], pooling, layer).shape == (0, *vectors.shape[1:])
    assert isinstance(ours.embed(TEXTS, 'tokens', layer), list)


def test_guesses_equal_those_of_transformers(ours, theirs, folder):
    texts = ['the [MASK] near the [MASK] .', 'no gap', '[MASK]', '']
    found = ours.fill_mask(texts, top_k=4)
    assert [len(masks) for masks in found] == [2, 0, 1, 0]
    vocab = published.vocabulary()
    for text, masks, positions in zip(texts, found, ([2, 5], [], [1], []), strict=True):
        probabilities = theirs(text)[1]
        for guesses, position in zip(masks, positions, strict=True):
            best = np.argsort(-probabilities[position])[:4]
            assert [guess.token for guess in guesses] == [vocab[i] for i in best]
            agree([guess.probability for guess in guesses], probabilities[position][best])


def test_pseudo_likelihoods_equal_those_of_transformers(ours, theirs):
    found = ours.pseudo_likelihood(TEXTS)
    for text, scored in zip(TEXTS, found, strict=True):
        ids = ours.tokenizer.encode_batch([text]).ids[0]
        assert scored.tokens == [ours.tokenizer.vocab[i] for i in ids]
        for position, index in enumerate(ids):
            tokens = [ours.tokenizer.vocab[i] for i in ids]
            tokens[position] = '[MASK]'
            masked = ' '.join(tokens).replace(' ##', '##')
            if '##' in ''.join(tokens):
                continue  # no text is tokenized this way
            expected = np.log(theirs(masked)[1][position + 1, index])
            assert scored.log_probabilities[position] == pytest.approx(expected, abs=1e-4)
    assert len(found[2].tokens) == 0


def test_tokens_of_a_long_text_come_from_the_window_with_most_context(ours, theirs):
    words = [published.vocabulary()[9 + i % 30] for i in range(50)]
    vectors = ours.embed([' '.join(words)], 'tokens')[0]
    assert len(vectors) == 52
    parts = [' '.join(words[start : start + 22]) for start in (0, 17, 28)]
    first, second, third = (theirs(part)[0][-1] for part in parts)
    # Words 17 … 21 are in windows 1 and 2, 28 … 38 in 2 and 3; each window's middle is its own.
    agree(vectors[:20], first[:20])
    agree(vectors[20:34], second[3:17])
    agree(vectors[34:], third[6:])
    agree(ours.embed([' '.join(words)], 'mean')[0], vectors.mean(0))
    agree(
        ours.embed([' '.join(words)], 'cls')[0], np.mean([x[0] for x in (first, second, third)], 0)
    )

    words[40] = '[MASK]'
    guesses = ours.fill_mask([' '.join(words)], top_k=1)[0]
    probabilities = theirs(' '.join(words[28:]))[1]
    assert len(guesses) == 1
    assert guesses[0][0].probability == pytest.approx(probabilities[13].max(), abs=1e-5)


def test_bfloat16_changes_vectors_a_little(folder, ours):
    rough = Predictor(huggingface.load(folder), dtype='bfloat16', batch_tokens=400)
    for exact, near in zip(ours.embed(TEXTS), rough.embed(TEXTS), strict=True):
        assert near.dtype == np.float32
        assert 0 < np.abs(exact - near).max() < 0.1 * np.abs(exact).max()


def test_an_invalid_setting_is_refused(folder, ours, tmp_path):
    model = huggingface.load(folder)
    for settings, word in [
        ({'max_length': 25}, 'from 3 to 24'),
        ({'max_length': 2}, 'from 3'),
        ({'overlap': 1.0}, 'overlap'),
        ({'dtype': 'float8'}, 'bfloat16'),
    ]:
        with pytest.raises(UserError, match=word):
            Predictor(model, **settings)
    for arguments, word in [
        (('sum',), 'mean'),
        (('mean', 5), r'0 \(embeddings\) to 4'),
        (('mean', 'first'), 'sum_last_4'),
    ]:
        with pytest.raises(UserError, match=word):
            ours.embed(TEXTS, *arguments)
    bare = published.folder(tmp_path / 'bare', 'BertModel', num_hidden_layers=2)
    with pytest.raises(UserError, match='needs 4 layers'):
        Predictor(huggingface.load(bare)).embed(TEXTS, layer='sum_last_4')
    with pytest.raises(UserError, match='no head for fill_mask'):
        Predictor(huggingface.load(bare)).fill_mask(TEXTS)
    (bare / 'vocab.txt').unlink()
    with pytest.raises(UserError, match='no tokenizer'):
        Predictor(huggingface.load(bare))


def test_texts_that_are_mostly_unknown_to_the_vocabulary_are_counted(folder):
    model = Predictor(huggingface.load(folder), batch_tokens=400)
    model.embed(['Привет мир', 'the ship near мир', '', 'the 船 и'])
    (what,) = [name for name, number in model.counts.items() if number]
    assert 'unknown' in what
    assert model.counts[what] == 2
