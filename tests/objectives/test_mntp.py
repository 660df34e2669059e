"""Masked next-token prediction beside causal rows: labels, attention, and one head for both."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax import main
from bert_jax.averages import means
from bert_jax.errors import UserError
from bert_jax.models import architectures, kernels
from bert_jax.models.architecture import Compute
from bert_jax.models.model import Model
from bert_jax.models.rows import Rows
from bert_jax.models.visibility import Pattern
from bert_jax.objectives.mntp import is_causal
from bert_jax.tasks.pretraining import builder
from tests.end_to_end import small
from tests.random_parameters import random_parameters

LENGTH, VOCAB = 16, 50
HYBRID = small.ONE_STAGE | {
    'objectives__mlm': 0.0,
    'objectives__nsp': 0.0,
    'objectives__mntp': 0.75,
    'objectives__ntp': 0.25,
    'mntp__causal_share': 0.25,
    'model__prediction__shift': True,
    'training__max_predictions': (LENGTH,),
    'data__segments': 'single',
    'masking__rate': 0.3,
    'evaluation__cloze_examples': 0,
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('hybrid')


@pytest.fixture(scope='module')
def task(folder):
    return builder.build(small.config(folder, **HYBRID))


def corrupted(task):
    clean = Rows.of(task.stages[0].source.batch(0))
    keys_B = jax.random.split(jax.random.key(0), len(clean.input_ids_BT))
    return clean, task.corruption(keys_B, clean)


def architecture(**more):
    sizes = dict(vocab_size=VOCAB, hidden_size=32, num_layers=2, num_heads=2, intermediate_size=48)
    more = {'prediction.shift': True, 'pooler': False, **more}
    return architectures.build('bert', **sizes, max_position_embeddings=LENGTH).changed(more)


def test_every_fourth_example_is_causal_in_any_batch():
    causal = np.asarray(is_causal(np.arange(4000), 0.25))
    assert causal.reshape(-1, 4).sum(axis=1).tolist() == [1] * 1000
    assert np.asarray(is_causal(np.arange(4000), 3 / 7)).sum() == 4000 * 3 // 7
    assert not np.asarray(is_causal(np.arange(100), 0.0)).any()
    assert np.asarray(is_causal(np.arange(100), 1.0)).all()


def test_labels_and_causal_rows_equal_a_loop(task):
    clean, rows = corrupted(task)
    special = {*task.corruption.vocabulary.special_ids}
    found = 0
    for row in range(len(clean.input_ids_BT)):
        causal = clean.labels['example_index'][row] % 4 == 3
        assert rows.causal_B[row] == causal
        for place in range(LENGTH):
            original = int(clean.input_ids_BT[row, place])
            is_text = clean.attention_mask_BT[row, place] > 0 and original not in special
            weight = rows.targets.weights_BP[row, place]
            assert rows.targets.positions_BP[row, place] == place
            assert rows.targets.ids_BP[row, place] == original
            if causal:
                assert rows.input_ids_BT[row, place] == original
                assert weight == float(is_text)
            elif not is_text:
                assert weight == 0
            elif rows.input_ids_BT[row, place] != original:
                assert weight == 1
            found += weight > 0
    assert found > 50


def test_causal_rows_do_not_see_later_tokens_and_the_other_rows_do():
    """Each prediction is that of the row alone, in a model of its kind; also with windows."""
    for made in (
        architecture(),
        architecture(windows=(4, None), positions='none', attention='rotary'),
    ):
        rng = np.random.default_rng(0)
        ids_BT = jnp.asarray(rng.integers(5, VOCAB, (4, LENGTH)))
        mask_BT = jnp.ones_like(ids_BT).at[1, 12:].set(0)
        causal_B = jnp.array([True, False, True, False])
        rows = Rows(ids_BT, mask_BT, causal_B=causal_B)
        both = Model(made, Compute('float32'), {'mlm': {}})
        params = random_parameters(both, rows, deviation=0.3)
        found = both.apply({'params': params}, rows).states.hidden_BTD
        for is_of_kind in (True, False):
            alone = Model(made, Compute('float32'), {'mlm': {}}, is_causal=is_of_kind)
            expected = alone.apply({'params': params}, Rows(ids_BT, mask_BT)).states.hidden_BTD
            own = np.flatnonzero(causal_B == is_of_kind)
            np.testing.assert_allclose(found[own], expected[own], atol=2e-5)


def test_a_token_is_predicted_at_the_position_before_it():
    """The shifted head mlm of a causal model equals the head clm, one position later."""
    made, ids_BT = architecture(), jnp.arange(5, 5 + LENGTH)[None]
    rows = Rows(ids_BT, jnp.ones_like(ids_BT))
    model = Model(made, Compute('float32'), {'mlm': {}}, is_causal=True)
    params = random_parameters(model, rows, deviation=0.3)
    shifted = model.apply({'params': params}, rows).heads['mlm']
    next_token = Model(made, Compute('float32'), {'clm': {}}, is_causal=True)
    renamed = {'encoder': params['encoder'], 'clm': params['mlm']}
    expected = next_token.apply({'params': renamed}, rows).heads['clm']
    np.testing.assert_allclose(shifted[:, 1:], expected[:, :-1], atol=1e-5)
    assert abs(shifted[:, 1:] - expected[:, 1:]).max() > 0.1


def test_the_terms_count_each_kind_of_rows(task):
    params = task.init(jax.random.key(0))
    params = jax.tree.map(lambda x: x.unbox() if hasattr(x, 'unbox') else x, params)
    batch = task.stages[0].source.batch(0)
    terms = jax.jit(lambda: task.terms(params, batch, jax.random.key(1), False))()
    clean, rows = corrupted(task)
    causal_B = np.asarray(rows.causal_B)
    assert terms['ntp_loss'].count == rows.targets.weights_BP[causal_B].sum()
    masked = clean.attention_mask_BT[~causal_B].sum() * 0.3
    assert terms['mntp_loss'].count == pytest.approx(masked, rel=0.1)
    found = means(jax.device_get(terms))
    assert {'mntp_accuracy', 'ntp_accuracy', 'mntp_empty', 'ntp_empty'} <= found.keys()
    assert task.weights == {'mntp_loss': 0.75, 'ntp_loss': 0.25}


def test_other_kernels_leave_causal_rows_to_xla(monkeypatch):
    monkeypatch.setattr(kernels, 'platform', lambda: 'tpu')
    assert kernels.choose(architecture(), Compute(), 128, True) == 'flash'
    assert (
        kernels.choose(architecture(), Compute(), 128, True, Pattern(has_causal_rows=True)) == 'xla'
    )
    line = kernels.describe(architecture(), Compute(), 128, Pattern(has_causal_rows=True))
    assert line == (
        'attention kernel xla: flash does not support causal attention in some of the rows'
    )


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        ({'training__max_predictions': (5,)}, 'max_predictions is 5 for sequences of 16'),
        ({'model__prediction__shift': None}, 'set model.prediction.shift=True'),
        ({'objectives__mntp': 0.0}, "objective 'ntp' needs 'mntp' too"),
        ({'objectives__mlm': 1.0}, 'these need different input corruptions'),
        (
            {'objectives__mntp': 0.0, 'objectives__ntp': 0.0, 'objectives__mlm': 1.0},
            'model.prediction.shift is True, which mlm does not train',
        ),
    ],
)
def test_what_cannot_be_trained_is_refused(folder, changes, message):
    with pytest.raises(UserError, match=message):
        builder.build(small.config(folder, **HYBRID | changes))


def test_a_run_fills_masks_scores_and_writes(folder):
    main.run(small.config(folder, **HYBRID | {'training__steps': (40,)}))
    model = bert_jax.load(str(folder / 'run'))
    text = 'The ship and the [MASK] near the harbour .'
    ((guesses,),) = model.fill_mask([text], top_k=120)
    scored = model.pseudo_likelihood(['The ship and the wave near the harbour .'])[0]
    place = scored.tokens.index('wave')
    (probability,) = [guess.probability for guess in guesses if guess.token == 'wave']
    assert np.exp(scored.log_probabilities[place]) == pytest.approx(probability, rel=1e-4)
    (written,) = model.generate(['The ship and'], new_tokens=4, temperature=0.0)
    assert written.text.startswith('The ship and ')
    assert len(written.tokens) == 4
    # The next token is what the head says at the last position of a causal row.
    ids = model.tokenizer.encode_batch(['The ship and'], special=True).ids[0]
    row = jnp.array([[model.tokenizer.cls_id, *ids]])
    rows = Rows(row, jnp.ones_like(row), causal_B=jnp.array([True]))
    causal = Model(model.architecture, Compute('float32'), {'mlm': {}})
    states = causal.apply({'params': model.params}, rows).states.hidden_BTD
    head = Model(model.architecture.changed({'prediction.shift': False}), Compute('float32'))
    logits = head.clone(heads={'mlm': {}}).apply({'params': model.params}, rows).heads['mlm']
    assert states.shape[1] == row.shape[1]
    allowed = [i for i in range(len(model.tokenizer.vocab)) if i not in model.tokenizer.special_ids]
    best = allowed[int(np.argmax(logits[0, -1, jnp.array(allowed)]))]
    assert written.tokens[0] == model.tokenizer.vocab[best]
