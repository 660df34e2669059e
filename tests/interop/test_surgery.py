"""Parameters fitted to another vocabulary, length and set of heads."""

import dataclasses
import random

import numpy as np
import pytest
import transformers

from bert_jax import tokenizers, tree_paths
from bert_jax.errors import UserError
from bert_jax.interop import huggingface, surgery
from bert_jax.loaded import loaded_model
from bert_jax.models import architectures
from bert_jax.models.architecture_parts import OffsetPositions, Rotary
from bert_jax.tasks import initialization
from bert_jax.tokenizers import old_subwords
from configs import base
from tests.interop import published


@pytest.fixture(scope='module')
def model(tmp_path_factory):
    return huggingface.load(published.folder(tmp_path_factory.mktemp('surgery') / 'bert'))


def tokenizer_of(tokens, folder):
    (folder / 'vocab.txt').write_text('\n'.join(tokens) + '\n')
    return tokenizers.load(str(folder))


def test_an_equal_architecture_and_tokenizer_change_nothing(model):
    fitted, lines = surgery.fit(model, model.architecture, model.tokenizer, model.heads)
    assert lines == []
    left = tree_paths.flatten(fitted.params)
    right = tree_paths.flatten(model.params)
    assert all(np.array_equal(left[name], right[name]) for name in right)


def test_weights_trained_left_to_right_are_named_where_attention_becomes_bidirectional(model):
    causal = dataclasses.replace(model, is_causal=True)
    arguments = (causal, model.architecture, model.tokenizer, ('mlm',))
    for is_causal in (True, False):
        lines = surgery.fit(*arguments, is_causal=is_causal)[1]
        assert any('left to right' in line for line in lines) == (not is_causal)


def test_tokens_keep_their_embeddings_or_get_the_mean_of_their_subwords(model, tmp_path):
    old = published.vocabulary()
    new = [*old[:5], 'moon', 'shipmoon', '##moon', 'ж', 'ship', '.']
    tokenizer = tokenizer_of(new, tmp_path)
    architecture = dataclasses.replace(model.architecture, vocab_size=len(new), hidden_dropout=0.0)
    fitted, lines = surgery.fit(model, architecture, tokenizer, ('mlm',))
    assert lines[-1] == (
        'vocabulary: 8 tokens keep their embedding; 2 new tokens start as the mean of their old '
        'subwords; 1 without a known subword start as the mean of all embeddings: ж'
    )
    assert [line for line in lines if 'dropped' in line] == [
        'dropped heads: nsp (no objective uses it)'
    ]
    _, lines = surgery.fit(model, model.architecture, model.tokenizer, (), reasons={'mlm': 'why'})
    assert lines == ['dropped heads: mlm (why); nsp (no objective uses it)']
    _, lines = surgery.fit(model, model.architecture, model.tokenizer, ())
    assert lines == ['dropped heads: mlm, nsp (no objective uses it)']
    before = model.params['encoder']['embeddings']['token']
    after = fitted.params['encoder']['embeddings']['token']
    index = {token: number for number, token in enumerate(old)}
    assert after.shape == (128, 20)
    np.testing.assert_array_equal(after[5], before[index['moon']])
    letters = [index[f'##{letter}'] for letter in 'moon']
    np.testing.assert_allclose(after[7], before[letters].mean(0), rtol=1e-6)
    np.testing.assert_allclose(after[6], before[[index['ship'], *letters]].mean(0), rtol=1e-6)
    np.testing.assert_allclose(after[8], before[: len(old)].mean(0), rtol=1e-5, atol=1e-6)
    assert not after[len(new) :].any()
    bias, old_bias = (m.params['mlm']['head']['bias'] for m in (fitted, model))
    assert bias[9] == old_bias[index['ship']]
    assert bias.shape == (128,)
    assert fitted.heads == ('mlm',)
    assert fitted.tokenizer is tokenizer


def test_added_tokens_start_as_the_mean_of_the_subwords_of_their_text(tmp_path):
    """Also where the name has capitals, punctuation or a space; as AutoTokenizer splits it."""
    folder = published.folder(tmp_path / 'old')
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    names = ['Moon-Ship', 'New moon', 'SHIPS', 'Köln', '[E1]']
    expected = [theirs(name, add_special_tokens=False)['input_ids'] for name in names]
    theirs.add_tokens(names)
    theirs.save_pretrained(tmp_path / 'new')
    model, tokenizer = huggingface.load(folder), tokenizers.load(str(tmp_path / 'new'))
    architecture = dataclasses.replace(model.architecture, vocab_size=tokenizer.vocab_size)
    fitted, lines = surgery.fit(model, architecture, tokenizer, model.heads)
    before, after = (m.params['encoder']['embeddings']['token'] for m in (model, fitted))
    for name, ids in zip(names, expected, strict=True):
        known = [index for index in ids if index != theirs.unk_token_id]
        assert (name == '[E1]') == (not known)
        known = known or [*range(len(published.vocabulary()))]
        own = after[tokenizer.vocab.index(name)]
        np.testing.assert_allclose(own, before[known].mean(0), rtol=1e-5, atol=1e-6)
    assert '; 4 new tokens start as the mean of their old subwords; 1 without' in lines[-1]


def test_rows_beyond_the_vocabulary_are_zeroed(model, tmp_path):
    tokenizer = tokenizer_of(published.vocabulary()[:100], tmp_path)
    spare = dataclasses.replace(model, tokenizer=tokenizer)
    architecture = dataclasses.replace(model.architecture, vocab_size=100)
    fitted, lines = surgery.fit(spare, architecture, tokenizer, model.heads)
    after = fitted.params['encoder']['embeddings']['token']
    assert lines == []
    np.testing.assert_array_equal(after[:100], model.params['encoder']['embeddings']['token'][:100])
    assert after.shape == (128, 20)
    assert not after[100:].any()


def test_positions_are_truncated_tiled_or_interpolated(model):
    old = model.params['encoder']['embeddings']['position']

    def fit(number, **how):
        architecture = dataclasses.replace(model.architecture, max_position_embeddings=number)
        fitted, lines = surgery.fit(model, architecture, model.tokenizer, model.heads, **how)
        assert len(lines) == 1
        return fitted.params['encoder']['embeddings']['position']

    np.testing.assert_array_equal(fit(45), np.concatenate([old, old, old])[:45])
    np.testing.assert_array_equal(fit(7), old[:7])
    stretched = fit(37, positions='interpolate')
    np.testing.assert_allclose(stretched[::2], old, atol=1e-6)
    np.testing.assert_allclose(stretched[1], (old[0] + old[1]) / 2, atol=1e-6)


def test_rows_before_the_first_position_are_kept(model):
    architecture = model.architecture.changed({'positions': OffsetPositions(2)})
    longer = dataclasses.replace(architecture, max_position_embeddings=30)
    shifted = dataclasses.replace(model, architecture=architecture)
    old = model.params['encoder']['embeddings']['position']
    fitted, lines = surgery.fit(shifted, longer, model.tokenizer, model.heads)
    new = fitted.params['encoder']['embeddings']['position']
    np.testing.assert_array_equal(new, np.concatenate([old, old[2:]])[:30])
    assert lines == [f'positions: {len(old) - 2} → 28 (tile)']


def test_a_new_head_is_newly_initialized(tmp_path):
    bare = huggingface.load(published.folder(tmp_path / 'bert', 'BertModel'))
    fitted, lines = surgery.fit(bare, bare.architecture, bare.tokenizer, ('nsp',))
    assert lines == []
    assert set(fitted.newly_initialized) == {'nsp/head/dense/bias', 'nsp/head/dense/kernel'}


def test_another_architecture_is_refused(model):
    architecture = dataclasses.replace(model.architecture, num_layers=3, layer_norm_eps=1e-5)
    with pytest.raises(UserError, match='num_layers is 2 there and 3 here; layer_norm_eps'):
        surgery.fit(model, architecture, model.tokenizer, model.heads)


@pytest.mark.parametrize('kind', ['bytebpe', 'unigram', 'sentencepiece-bpe'])
def test_vocabularies_of_other_kinds_are_matched(model, kind):
    draw = random.Random(0)
    words = [''.join(draw.choices('theshipnearmoon', k=5)) for _ in range(60)]
    texts = [
        'the ships near the moon and the moons near a ship ' * 20,
        ' '.join(draw.choices(words, k=2000)) + ' ü',
    ]
    old, new = (tokenizers.train(f'{kind}:{270 if kind == "bytebpe" else 60}', [t]) for t in texts)
    rows = np.random.default_rng(0).normal(size=(old.vocab_size, 20)).astype(np.float32)
    params = {'encoder/embeddings/token': rows}
    lines = surgery._fit_vocabulary(params, old, new)
    after, subwords = params['encoder/embeddings/token'], old_subwords.find(new, old)
    assert after.shape == (new.vocab_size, 20)
    kept, composed = 0, 0
    for index, token in enumerate(new.vocab):
        if token in old.vocab:
            kept += 1
            np.testing.assert_array_equal(after[index], rows[old.vocab.index(token)])
        elif own := subwords[index]:
            composed += 1
            np.testing.assert_allclose(after[index], rows[own].mean(0), rtol=1e-6)
        else:
            np.testing.assert_allclose(after[index], rows.mean(0), rtol=1e-5, atol=1e-6)
    assert min(kept, composed) > 1
    assert f'{kept:,} tokens keep their embedding; {composed:,} new tokens start' in lines[0]


def test_special_tokens_keep_their_role_under_another_name(tmp_path):
    old = tokenizers.train('unigram:32', ['the ships near the moon and the moons near a ship'])
    renamed = old.to_json()
    for one, other in zip(('<s>', '</s>', '<mask>'), ('[CLS]', '[SEP]', '[MASK]'), strict=True):
        renamed = renamed.replace(f'"{one}"', f'"{other}"')
    new = tokenizers.Tokenizer(renamed)
    assert new.vocab[new.mask_id] == '[MASK]'
    rows = np.random.default_rng(0).normal(size=(old.vocab_size, 20)).astype(np.float32)
    params = {'encoder/embeddings/token': rows}
    surgery._fit_vocabulary(params, old, new)
    np.testing.assert_array_equal(params['encoder/embeddings/token'], rows)


def test_the_rotary_bases_may_differ_from_those_of_the_weights():
    """For the extension of the context of ModernBERT and, with both bases, mmBERT."""
    sizes = dict(vocab_size=131, hidden_size=20, num_layers=4, num_heads=2, intermediate_size=28)
    short = architectures.build('modernbert', **sizes, **{'attention.theta': 10_000.0})
    params, _ = loaded_model.fill({}, short, ('mlm',))
    tokenizer = tokenizers.train('wordpiece:131', ['a few words of text'] * 9)
    model = loaded_model.LoadedModel('modernbert', short, params, tokenizer)
    config = base.get_config()
    config.model.architecture = None
    config.model.attention.theta = 160_000.0
    start = initialization.initialize(config, model, tokenizer, ('mlm',))
    assert start.architecture.attention == Rotary(160_000.0, 10_000.0)
    config.model.attention.local_theta = 160_000.0
    start = initialization.initialize(config, model, tokenizer, ('mlm',))
    assert start.architecture.attention == Rotary(160_000.0, 160_000.0)
    config.model.attention.local_theta = None
    bert = dataclasses.replace(model, architecture=architectures.build('bert', **sizes))
    with pytest.raises(UserError, match=r'attention.theta is .*, but Standard\(.* no theta'):
        initialization.initialize(config, bert, tokenizer, ('mlm',))
