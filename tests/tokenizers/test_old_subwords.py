"""The old subwords of a new token are those of its text."""

import json

import pytest
import tokenizers as library

from bert_jax import tokenizers
from bert_jax.tokenizers import Tokenizer, old_subwords

TEXT = 'The dogs sat in New York with cafés; covid was in the old new yorker mats. ü Москва ' * 20
SPECS = ('wordpiece:150', 'bytebpe:340', 'unigram:90', 'sentencepiece-bpe:100')
ADDED = ['COVID-19', 'New York', 'Moskau', 'Café', 'é', '[E1]', ' mats', 'Москва-ü', 'x\u4e2d']


def with_added(tokenizer, special):
    backend = library.Tokenizer.from_str(tokenizer.to_json())
    for token in ADDED:
        (backend.add_special_tokens if special else backend.add_tokens)([token])
    return Tokenizer(backend.to_str())


@pytest.mark.parametrize('special', [True, False])
@pytest.mark.parametrize('lowercase', [True, False])
@pytest.mark.parametrize('spec', SPECS)
def test_an_added_token_is_split_like_text(spec, lowercase, special):
    old = tokenizers.train(spec, [TEXT], lowercase)
    new, backend = with_added(old, special), library.Tokenizer.from_str(old.to_json())
    found = old_subwords.find(new, old)
    for number, token in enumerate(new.vocab):
        if token in old.vocab:  # 'é' is a byte in byte-level BPE, in both vocabularies
            assert found[number] == [old.vocab.index(token)]
            continue
        text = backend.encode(token, add_special_tokens=False).ids
        assert found[number] == [index for index in text if index != old.unk_id], token
    assert found[new.vocab.index('New York')]


@pytest.mark.parametrize('lowercase', [True, False])
@pytest.mark.parametrize('spec', SPECS)
def test_a_token_of_another_vocabulary_is_split_like_its_text(spec, lowercase):
    old = tokenizers.train(spec, [TEXT], lowercase)
    words = 'Mats Café newest York-ed unyorked sattest ÜMOST Éa'
    new = tokenizers.train(spec.split(':')[0] + ':420', [f'{words} ' * 50, TEXT], lowercase=False)
    found = old_subwords.find(new, old)
    backend = library.Tokenizer.from_str(old.to_json())
    start = {'wordpiece': '', 'bytebpe': 'Ġ'}.get(old.kind, '▁')
    num_starts = num_inside = 0
    for number, (token, ids) in enumerate(zip(new.vocab, found, strict=True)):
        if token in old.vocab:
            assert ids == [old.vocab.index(token)]
            continue
        text = new.decode([number]).strip().removeprefix('##')
        own = [old.vocab[index] for index in ids]
        expected = backend.encode(text, add_special_tokens=False)
        if '\ufffd' in text:
            continue
        if token.startswith(start) and not token.startswith('##'):
            num_starts += 1
            assert ids == [index for index in expected.ids if index != old.unk_id], token
        elif own:
            num_inside += 1
            assert not own[0].startswith(start or ' ')
            assert own[0].startswith('##') == (old.kind == 'wordpiece')
            joined = ''.join(piece.removeprefix('##') for piece in own)
            if old.unk_id not in expected.ids:
                assert joined == ''.join(expected.tokens).replace('##', '').removeprefix(start)
    assert num_starts > 3
    assert num_inside > 3


def test_bytes_of_part_of_a_character_are_not_text():
    old = tokenizers.train('bytebpe:270', ['the mats ' * 9], lowercase=True)
    settings = json.loads(old.to_json())
    for token in ('Ð', 'ÐľÐ', 'ĠCafÃ©'):  # a lead byte; о and a lead byte; ' Café'
        settings['model']['vocab'].setdefault(token, len(settings['model']['vocab']))
    new = Tokenizer(json.dumps(settings))
    found = dict(zip(new.vocab, old_subwords.find(new, old), strict=True))
    names = {token: [old.vocab[index] for index in ids] for token, ids in found.items()}
    assert names['Ð'] == ['Ð']
    assert names['ÐľÐ'] == ['Ð', 'ľ', 'Ð']
    assert ''.join(names['ĠCafÃ©']) == 'ĠcafÃ©'
