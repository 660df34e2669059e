"""The objective denoising: rows of encoder and decoder, loss, and refused runs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import objectives
from bert_jax.averages import mean
from bert_jax.errors import UserError
from bert_jax.models import architectures
from bert_jax.models.architecture import Compute
from bert_jax.models.rows import Rows
from bert_jax.objectives.corruption import TargetLayout, Vocabulary
from bert_jax.objectives.denoising import NOISES, Denoising, NoisedText, options
from bert_jax.tasks.pretraining import builder
from configs import base

PAD, UNK, CLS, SEP, MASK, LANGUAGE = range(6)
VOCAB, LENGTH, ROWS, FIRST = 64, 20, 6, 10
SENTINELS = tuple(range(VOCAB - 1, VOCAB - 9, -1))
SPECIAL = (*range(6), *SENTINELS)
LAYOUTS = {
    'bart': TargetLayout((CLS,), SEP, SEP),
    'mbart': TargetLayout((), SEP, None),
    't5': TargetLayout((), SEP, PAD),
    'bert2bert': TargetLayout((CLS,), SEP, CLS),
}


def vocabulary(layout='bart'):
    starts = np.arange(VOCAB) % 2 == 0
    return Vocabulary(MASK, PAD, SPECIAL, np.ones(VOCAB, int), starts, SENTINELS, LAYOUTS[layout])


def make_config(kind='bart', **values):
    config = base.get_config()
    config.objectives.mlm = config.objectives.nsp = 0.0
    config.objectives.denoising = 1.0
    config.noise.update({'kind': kind, 'mask_random': 0.0} | values)
    return config


def clean_rows():
    """Rows [CLS] X [SEP] of rising tokens and of several lengths; the last row is padding."""
    lengths = np.array([LENGTH, 12, 5, 3, LENGTH - 1, 0])
    index = np.arange(LENGTH)
    ids = np.where(index < lengths[:, None], FIRST + np.tile(index, (ROWS, 1)), PAD)
    ids[:-1, 0] = CLS
    ids[np.arange(ROWS - 1), lengths[:-1] - 1] = SEP
    return Rows.of(
        {
            'input_ids': ids.astype(np.int32),
            'attention_mask': (index < lengths[:, None]).astype(np.int32),
            'sentence_start': (index % 4 == 1).astype(np.int32) * np.ones((ROWS, 1), np.int32),
            'language': np.full(ROWS, LANGUAGE, np.int32),
            'example_index': np.arange(ROWS, dtype=np.int32),
        }
    ), lengths


def noised(kind, layout, **values):
    corruption = NoisedText.build(make_config(kind, **values), vocabulary(layout), {LENGTH: LENGTH})
    clean, lengths = clean_rows()
    rows = jax.device_get(jax.jit(corruption)(jax.random.split(jax.random.key(3), ROWS), clean))
    assert rows.input_ids_BT.shape[1] == corruption.source_length(LENGTH)
    assert rows.target.input_ids_BT.shape[1] == corruption.target_length(LENGTH)
    return corruption, rows, lengths


def texts(ids_BL, mask_BL):
    return [ids[mask > 0].tolist() for ids, mask in zip(ids_BL, mask_BL, strict=True)]


@pytest.mark.parametrize('layout', LAYOUTS)
@pytest.mark.parametrize('kind', NOISES)
def test_every_noise_has_the_rows_of_every_decoder(kind, layout):
    _, rows, lengths = noised(kind, layout)
    target = rows.target
    sources = texts(rows.input_ids_BT, rows.attention_mask_BT)
    inputs = texts(target.input_ids_BT, target.attention_mask_BT)
    labels = texts(target.chosen.ids_BP, target.chosen.weights_BP)
    assert sources[-1] == inputs[-1] == labels[-1] == []
    first = {'bart': [CLS], 'bert2bert': [CLS]}.get(layout, [])
    first_written = {'bart': [CLS]}.get(layout, [])
    last = [SEP, LANGUAGE] if layout == 'mbart' else [SEP]
    start = {'bart': SEP, 't5': PAD, 'mbart': LANGUAGE, 'bert2bert': CLS}[layout]
    for length, source, read, written in zip(lengths, sources, inputs, labels, strict=True):
        if not length:
            continue
        assert read == [start, *written[:-1]]
        for ids, special in ((source, first), (written, first_written)):
            assert [token for token in ids if token == CLS] == special == ids[: len(special)]
            assert ids[-len(last) :] == last
        text = list(range(FIRST + 1, FIRST + length - 1))
        inner = [[t for t in ids if t >= FIRST and t not in SENTINELS] for ids in (source, written)]
        if kind == 'bart':
            assert inner[1] == text
            assert {*inner[0]} <= {*text}
        else:  # source and target share the tokens
            assert sorted(inner[0] + inner[1]) == text
    assert (rows.input_ids_BT[rows.attention_mask_BT == 0] == PAD).all()


def test_bart_hides_words_and_moves_sentences():
    _, rows, _ = noised('bart', 'bart', permute_sentences=1.0, mask=0.5)
    source = texts(rows.input_ids_BT, rows.attention_mask_BT)[0]
    assert MASK in source
    kept = [token for token in source if token >= FIRST]
    assert kept != sorted(kept)


def test_noise_depends_on_the_key_of_the_row_alone():
    corruption, rows, _ = noised('bart', 'bart')
    clean, _ = clean_rows()
    keys = jax.random.split(jax.random.key(3), ROWS)
    part = jax.tree.map(lambda x: x[1:3], clean)
    again = jax.device_get(corruption(keys[1:3], part))
    np.testing.assert_array_equal(again.input_ids_BT, rows.input_ids_BT[1:3])


def test_a_readable_batch_has_source_and_target():
    corruption, rows, _ = noised('t5', 't5')
    shown = corruption.describe(rows, 1, [str(index) for index in range(VOCAB)])
    assert shown['source'][-1] == shown['target'][-1] == str(SEP)
    assert shown['target'][0] == str(SENTINELS[0])
    assert str(SENTINELS[0]) in shown['source']


@pytest.mark.parametrize('kind', ['bart', 't5'])
def test_the_loss_is_the_mean_over_target_tokens(kind):
    architecture = architectures.build(
        'bart', vocab_size=VOCAB, hidden_size=16, num_layers=1, num_heads=2, intermediate_size=8,
        max_position_embeddings=40, **{'decoder.num_layers': 1},
    )  # fmt: skip
    chosen = Denoising()
    model = objectives.build_model(architecture, Compute(), [chosen])
    _, rows, _ = noised(kind, 'bart')
    params = model.init(jax.random.key(0), rows)
    output = jax.jit(model.apply)(params, rows)
    terms = chosen.terms(output, clean_rows()[0])
    logits = np.asarray(output.heads['seq2seq'], np.float64)[..., :VOCAB]
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    _, ids, weights = rows.target.chosen
    losses = [-log_p[b, u, ids[b, u]] for b, u in zip(*np.nonzero(weights), strict=True)]
    assert mean(terms['denoising_loss']) == pytest.approx(np.mean(losses), rel=1e-5)
    assert terms['denoising_loss'].count == len(losses)
    assert terms['denoising_cut'].count == ROWS - 1

    def loss_of(rows):
        return chosen.terms(model.apply(params, rows), rows)['denoising_loss'].sum

    other = jnp.asarray(rows.input_ids_BT).at[0, 2].set(FIRST)  # the decoder reads the source
    assert abs(loss_of(rows) - loss_of(rows.replace(input_ids_BT=other))) > 1e-6


def test_tokens_that_find_no_place_are_counted():
    values = dict(mask=1.0, poisson_lambda=1.0, replace_length=-1, permute_sentences=0.0)
    _, rows, lengths = noised('bart', 'bart', **values)
    assert rows.labels['cut'][-1] == 0
    full = rows.attention_mask_BT.sum(1) == rows.attention_mask_BT.shape[1]
    assert (rows.labels['cut'][~full] == 0).all()


@pytest.mark.parametrize(
    ('kind', 'values', 'changes', 'message'),
    [
        ('t5', {}, {'sentinel_ids': ()}, "'t5' needs 1 sentinels .* but the tokenizer has 0"),
        ('bart', {}, {'mask_id': -1}, 'needs a mask token or a sentinel'),
        ('bart', {}, {'is_word_start_V': None}, 'set noise.whole_words=False'),
        ('bart', {'mask': 0.0, 'permute_sentences': 0.0}, {}, 'the noise changes nothing'),
    ],
)
def test_a_noise_that_cannot_be_made_is_refused(kind, values, changes, message):
    with pytest.raises(UserError, match=message):
        NoisedText.build(
            make_config(kind, **values),
            dataclasses.replace(vocabulary(), **changes),
            {LENGTH: LENGTH},
        )


def test_a_model_without_decoder_is_refused():
    encoder = architectures.build('bert')
    both = architectures.build('bart')
    with pytest.raises(UserError, match='denoising needs a model with a decoder; set model.arch'):
        builder._check_decoder({'denoising': Denoising()}, encoder)
    mlm = objectives.OBJECTIVES['mlm']()
    with pytest.raises(UserError, match='which mlm does not train; set objectives.denoising'):
        builder._check_decoder({'mlm': mlm}, both)
    builder._check_decoder({'denoising': Denoising()}, both)
    builder._check_decoder({'mlm': mlm}, encoder)


def test_every_option_is_a_key():
    keys = {*base.get_config().noise} - {'kind'}
    assert keys == {name for kind in NOISES.values() for name in options(kind)}
