"""Checkpoints of fairseq: the same outputs as transformers, whatever layout they were saved in."""

import argparse
import json

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from bert_jax import tokenizers
from bert_jax.errors import UserError
from bert_jax.interop import loading
from bert_jax.tokenizers import Tokenizer, byte_bpe
from tests.interop import published

WORDS = [f'w{number}' for number in range(published.SIZES['vocab_size'] - 5)]
OPTIONS = {
    'arch': 'roberta_base',
    'encoder_embed_dim': 20,
    'encoder_layers': 2,
    'encoder_attention_heads': 4,
    'encoder_ffn_embed_dim': 28,
    'activation_fn': 'gelu',
    'dropout': 0.1,
    'attention_dropout': 0.1,
}
# Name in transformers → name in fairseq, by fairseq/models/roberta/hub_interface.py and the
# conversion script of transformers.
NAMES = [
    ('roberta.embeddings.word_embeddings', 'decoder.sentence_encoder.embed_tokens'),
    ('roberta.embeddings.position_embeddings', 'decoder.sentence_encoder.embed_positions'),
    ('roberta.embeddings.LayerNorm', 'decoder.sentence_encoder.emb_layer_norm'),
    ('roberta.encoder.layer.', 'decoder.sentence_encoder.layers.'),
    ('attention.self.query', 'self_attn.q_proj'),
    ('attention.self.key', 'self_attn.k_proj'),
    ('attention.self.value', 'self_attn.v_proj'),
    ('attention.output.dense', 'self_attn.out_proj'),
    ('attention.output.LayerNorm', 'self_attn_layer_norm'),
    ('intermediate.dense', 'fc1'),
    ('output.dense', 'fc2'),
    ('output.LayerNorm', 'final_layer_norm'),
    ('lm_head.decoder', 'lm_head'),
    ('lm_head.', 'decoder.lm_head.'),
    ('classifier.', 'classification_heads.mnli.'),
]


def model(name='RobertaForMaskedLM'):
    made = published.model(name, type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=1)
    with torch.no_grad():  # fairseq has no embedding of the only token type
        made.roberta.embeddings.token_type_embeddings.weight.zero_()
        made.roberta.embeddings.word_embeddings.weight[1].zero_()
    return made


def state_of(made):
    state = {}
    for name, value in made.state_dict().items():
        if 'token_type' in name or name == 'lm_head.decoder.bias':
            continue
        for theirs, fairseq in NAMES:
            name = name.replace(theirs, fairseq)
        state[name] = value
    return state


def joined(state):
    """Queries, keys and values as one array, as in checkpoints of 2019."""
    state = dict(state)
    for name in [name for name in state if '.q_proj.' in name]:
        parts = [state.pop(name.replace('.q_proj.', f'.{part}_proj.')) for part in 'qkv']
        state[name.replace('q_proj.', 'in_proj_')] = torch.cat(parts)
    return state


def write(folder, state, options=OPTIONS, name='model.pt', words=WORDS, is_config=False, **saving):
    settings = argparse.Namespace(**options)
    config = {'args': None, 'cfg': {'model': settings}} if is_config else {'args': settings}
    extra = {'extra_state': {'epoch': 1}, 'optimizer_history': [{'num_updates': 3}]}
    folder.mkdir(exist_ok=True)
    torch.save(config | {'model': state} | extra, folder / name, **saving)
    (folder / 'dict.txt').write_text(''.join(f'{word} 1\n' for word in words))
    return folder


@pytest.mark.parametrize('is_old', [False, True])
def test_outputs_equal_those_of_transformers(is_old, tmp_path):
    made = model()
    state = joined(state_of(made)) if is_old else state_of(made)
    if is_old:
        state['decoder.sentence_encoder.embed_positions._float_tensor'] = torch.zeros(1)
    saving = {'_use_new_zipfile_serialization': not is_old}
    loaded = loading.load_any(write(tmp_path / 'm', state, is_config=not is_old, **saving))
    assert loaded.heads == ('mlm',)
    ours, theirs = published.ours(loaded), published.theirs(made, loaded.architecture)
    for name, expected in theirs.items():
        np.testing.assert_allclose(ours[name], expected, atol=2e-5, err_msg=name)


def test_a_classifier_and_another_checkpoint_of_the_folder(tmp_path):
    made = model('RobertaForSequenceClassification')
    state = state_of(made) | {
        name: value for name, value in state_of(model()).items() if 'lm_head' in name
    }
    state['decoder.lm_head.weight'] = state['decoder.sentence_encoder.embed_tokens.weight']
    folder = write(tmp_path / 'm', state, name='checkpoint_best.pt')
    write(folder, state_of(model()), name='checkpoint_last.pt')
    with pytest.raises(UserError, match=r'checkpoint_best.pt, checkpoint_last.pt; choose one'):
        loading.load_any(folder)
    loaded = loading.load_any(folder / 'checkpoint_best.pt')
    assert loaded.heads == ('mlm', 'sequence_classification')
    ours, theirs = published.ours(loaded), published.theirs(made, loaded.architecture)
    logits = 'sequence_classification_logits'
    np.testing.assert_allclose(ours[logits], theirs[logits], atol=2e-5)


def test_symbols_that_are_words_split_texts_at_spaces_as_in_transformers(tmp_path):
    loaded = loading.load_any(write(tmp_path / 'm', state_of(model())))
    tokenizer, texts = loaded.tokenizer, ['w0 w7', 'w3 x  w125 <mask> w1', '', '<s> w2']
    assert tokenizer.kind == 'wordlevel'
    tokenizer.save(tmp_path)
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / 'tokenizer.json'))
    for text, ids in zip(texts, tokenizer.encode_batch(texts, special=True).ids, strict=True):
        assert ids.tolist() == theirs(text, add_special_tokens=False)['input_ids']
    assert tokenizer.encode_batch(['<mask> w0']).ids[0].tolist() == [tokenizer.unk_id, 4]
    assert tokenizers.load(str(tmp_path / 'tokenizer.json')).fingerprint == tokenizer.fingerprint


def test_symbols_that_are_ids_of_gpt2(tmp_path):
    text = 'The old dog went home. ' * 30
    trained = json.loads(tokenizers.train('bytebpe:300', [text]).to_json())['model']
    plain = [token for token in trained['vocab'] if not token.startswith('<')]
    order = np.random.default_rng(0).permutation(len(plain))  # by frequency in the real dict.txt
    symbols = [str(number) for number in order] + ['madeupword0000']
    made = published.model(
        'RobertaForMaskedLM',
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=1,
        vocab_size=len(symbols) + 5,
    )
    folder = write(tmp_path / 'm', state_of(made), words=symbols)
    with pytest.raises(UserError, match='lacks encoder.json'):
        loading.load_any(folder)
    (folder / 'encoder.json').write_text(json.dumps({t: i for i, t in enumerate(plain)}))
    pairs = '\n'.join(' '.join(pair) for pair in trained['merges'])
    (folder / 'vocab.bpe').write_text(f'#version: 0.2\n{pairs}\n')
    tokenizer = loading.load_any(folder).tokenizer
    same = Tokenizer(
        json.dumps(byte_bpe.settings({t: i for i, t in enumerate(plain)}, trained['merges']))
    )
    (ids,), (expected,) = (t.encode_batch(['The dogs went. ö']).ids for t in (tokenizer, same))
    assert [tokenizer.vocab[i] for i in ids] == [same.vocab[i] for i in expected]
    assert ids.tolist() == [4 + symbols.index(str(plain.index(same.vocab[i]))) for i in expected]


@pytest.mark.parametrize(
    ('options', 'change', 'words', 'message'),
    [
        ({'encoder_normalize_before': True}, {}, WORDS, 'encoder_normalize_before=True is not'),
        ({'activation_fn': 'swish2'}, {}, WORDS, 'activation_fn=swish2'),
        ({}, {'decoder.version': torch.ones(1)}, WORDS[:-1], 'has 130 symbols .* 131'),
        ({}, {'decoder.other.weight': torch.ones(1)}, WORDS, 'no place for .*decoder.other.weight'),
        ({}, {}, ['w0'] * 125 + ['x\ny'], 'line 126: .* is not SYMBOL COUNT'),
    ],
)
def test_other_models_are_one_line(options, change, words, message, tmp_path):
    folder = write(tmp_path / 'm', state_of(model()) | change, OPTIONS | options, words=words)
    with pytest.raises(UserError, match=message) as caught:
        loading.load_any(folder)
    assert '\n' not in str(caught.value)


def test_a_file_of_another_program_is_one_line(tmp_path):
    folder = write(tmp_path / 'm', {})
    torch.save({'state_dict': {}}, folder / 'model.pt')
    with pytest.raises(UserError, match='not a checkpoint of fairseq'):
        loading.load_any(folder)
    (folder / 'model.pt').write_bytes(b'PK\x03\x04 nonsense')
    with pytest.raises(UserError, match='model.pt is damaged'):
        loading.load_any(folder)
