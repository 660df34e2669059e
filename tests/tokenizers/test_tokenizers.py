import json
import pickle
import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies

from bert_jax import errors, tokenizers
from bert_jax.tokenizers import cached_encoding, wordpiece

TEXT = (
    'The cat sat on the mat. The dogs were sitting on the mats, and the cats sat with them!\n'
    'Sitting cats; walking dogs. Naïve cafés in 北京 and Москва.\n\n'
) * 5
VOCAB = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'the', 'cat', '##s', 'Cat', '[', ']', 'é']


@pytest.fixture(scope='module')
def trained():
    return tokenizers.train('wordpiece:90', [TEXT])


def write_vocab(folder, tokens=VOCAB):
    path = folder / 'vocab.txt'
    path.write_text('\n'.join(tokens) + '\n', encoding='utf-8')
    return str(path)


def test_training_makes_the_requested_size_with_special_tokens_first(trained):
    assert trained.vocab[:5] == tokenizers.SPECIAL_TOKENS
    assert trained.special_ids == (0, 1, 2, 3, 4)
    assert trained.vocab_size == len(trained.vocab) == len(set(trained.vocab)) == 90
    assert 'the' in trained.vocab
    assert trained.lowercase is True


def test_training_is_deterministic(trained):
    texts = [TEXT] + [
        ' '.join(''.join(random.Random(i).choices('abcdefgh', k=4)) for _ in range(50))
        for i in range(20)
    ]
    first = tokenizers.train('wordpiece:200', texts)
    assert all(
        tokenizers.train('wordpiece:200', texts).fingerprint == first.fingerprint for _ in range(3)
    )
    assert first.fingerprint != trained.fingerprint


def test_the_training_text_has_no_unknown_tokens(trained):
    ids, lengths = trained.encode_ids(TEXT.split('\n'))
    assert trained.unk_id not in ids
    assert lengths.sum() == len(ids) > 0


def test_training_without_lowercasing():
    cased = tokenizers.train('wordpiece:90', [TEXT], lowercase=False)
    assert cased.lowercase is False
    assert {'T', 'ï'} <= set(cased.vocab) | {token.removeprefix('##') for token in cased.vocab}
    assert cased.decode(cased.encode_ids(['The cat'])[0]) == 'The cat'


def test_rare_characters_become_unknown(monkeypatch):
    monkeypatch.setattr(wordpiece, 'MIN_ALPHABET', 3)
    text = 'aa bb cc ab ' * 1000 + 'zz'
    for size, num_unknown in ((15, 1), (17, 0)):  # 16 and 17 are the room for 'z' and '##z'
        small = tokenizers.train(f'wordpiece:{size}', [text])
        ids, _ = small.encode_ids(['ab', 'zz'])
        assert (ids == small.unk_id).sum() == num_unknown


def test_the_alphabet_follows_the_size_of_the_vocabulary():
    rng = random.Random(0)
    characters = [chr(0x4E00 + i) for i in range(3000)]
    weights = [1 / (i + 10) for i in range(3000)]
    text = ''.join(rng.choices(characters, weights, k=100_000))
    unknown = []
    for size in (1500, 6000):
        tokenizer = tokenizers.train(f'wordpiece:{size}', [text])
        ids, _ = tokenizer.encode_ids([text])
        unknown.append((ids == tokenizer.unk_id).mean())
    assert 0.05 < unknown[0] < 0.2
    assert unknown[1] == 0
    assert tokenizer.vocab_size == 5 + len(set(text))


def test_syllables_within_words_are_covered():
    rng = random.Random(0)
    syllables = [chr(0xAC00 + i) for i in range(2000)]
    weights = [1 / (i + 100) for i in range(2000)]
    words = [''.join(rng.choices(syllables, weights, k=3)) for _ in range(20_000)]
    text = ' '.join(words * 3)
    tokenizer = tokenizers.train('wordpiece:4800', [text], lowercase=False)
    assert tokenizer.vocab_size == 4800  # no room is left for rarer syllables
    ids, _ = tokenizer.encode_ids([text])
    assert (ids == tokenizer.unk_id).mean() < 0.01


def test_words_of_up_to_200_characters_are_split(tmp_path, trained):
    for tokenizer in (tokenizers.load(write_vocab(tmp_path, [*VOCAB, 'a', '##a'])), trained):
        encoded = tokenizer.encode_batch(['a' * 200, 'a' * 201]).ids
        assert len(encoded[0]) > 1
        assert tokenizer.unk_id not in encoded[0]
        assert encoded[1].tolist() == [tokenizer.unk_id]


def test_word_counts_do_not_depend_on_the_chunk_size(monkeypatch):
    texts = ['The cats sat, the dog', '', 'sat. The', 'un-cat']
    expected = {'the': 3, 'cats': 1, 'sat': 2, ',': 1, 'dog': 1, '.': 1, 'un': 1, '-': 1, 'cat': 1}
    for chunks in (2**19, 3, 1):
        monkeypatch.setattr(wordpiece, 'COUNTED_CHUNKS', chunks)
        assert wordpiece.word_counts(texts, lowercase=True) == expected


@pytest.mark.parametrize(
    ('spec', 'message'),
    [
        ('wordpeace:100', "kind 'wordpeace'; did you mean wordpiece. known: bytebpe, "),
        ('wordpiece', 'wordpiece:8000'),
        ('wordpiece:many', 'wordpiece:8000'),
        ('wordpiece:5', 'above 5'),
        ('wordpiece:20', 'too small'),
    ],
)
def test_invalid_training_specs_are_an_error(spec, message):
    with pytest.raises(errors.UserError, match=message):
        tokenizers.train(spec, [TEXT])


def test_training_text_without_words_is_an_error():
    with pytest.raises(errors.UserError, match='has no words'):
        tokenizers.train('wordpiece:100', ['', ' \n '])


def test_word_starts_follow_the_vocabulary(tmp_path):
    tokenizer = tokenizers.load(write_vocab(tmp_path))
    starts = [token for token, s in zip(tokenizer.vocab, tokenizer.is_word_start, strict=True) if s]
    assert starts == ['[UNK]', 'the', 'cat', 'Cat', '[', ']', 'é']
    assert tokenizer.is_word_start.dtype == bool


def test_offsets_refer_to_the_original_text(trained):
    text = 'Naïve\u200b  Cafe\u0301s,\tin 北京!'
    encoded = trained.encode_batch([text, ''])
    pieces = [text[start:end] for start, end in encoded.offsets[0]]
    assert ''.join(pieces).replace('\u200b', '') == 'NaïveCafe\u0301s,in北京!'
    starts = trained.is_word_start[encoded.ids[0]]
    words = [p for p, is_start in zip(pieces, starts, strict=True) if is_start]
    assert words[0][0] == 'N'
    assert [w for w in words if w in '北京'] == ['北', '京']
    assert encoded.offsets[1].shape == (0, 2)
    assert encoded.ids[1].dtype == np.int32


def test_literal_special_tokens_are_text_by_default(tmp_path):
    tokenizer = tokenizers.load(write_vocab(tmp_path))
    texts = ['the[MASK] cat', '[SEP]']
    assert all(
        token not in tokenizer.encode_ids(texts)[0]
        for token in (tokenizer.mask_id, tokenizer.sep_id)
    )
    plain, special = tokenizer.encode_batch(texts), tokenizer.encode_batch(texts, special=True)
    assert tokenizer.mask_id not in plain.ids[0]
    assert special.ids[0].tolist() == [5, tokenizer.mask_id, 6]
    assert special.offsets[0].tolist() == [[0, 3], [3, 9], [10, 13]]
    assert special.ids[1].tolist() == [tokenizer.sep_id]


@settings(max_examples=200, deadline=None)
@given(
    texts=strategies.lists(
        strategies.text(
            strategies.sampled_from(' \t\n\r\x00\x1c\x85\u00a0\u2028\u200d\u0301aéB.[]#北😀\ud83d')
        ),
        max_size=4,
    )
)
def test_cached_encoding_equals_plain_encoding(texts):
    tokenizer = _CACHED
    ids, lengths = tokenizer.encode_ids(texts)
    expected = tokenizer.encode_batch(texts).ids
    assert lengths.tolist() == [len(e) for e in expected]
    assert ids.tolist() == [i for e in expected for i in e]


_CACHED = tokenizers.train(
    'wordpiece:60', ['abé B. aB bB [] # 北 \u2028 ab 😀'] * 3, lowercase=False
)


def test_the_cache_is_cleared_when_full(monkeypatch, trained):
    monkeypatch.setattr(cached_encoding, 'CACHED_IDS', 10)
    tokenizer = tokenizers.Tokenizer(trained.to_json())
    texts = [f'cat{i} sat' for i in range(100)]
    expected = trained.encode_ids(texts)[0]
    found = [tokenizer.encode_ids([text])[0] for text in texts]
    np.testing.assert_array_equal(np.concatenate(found), expected)
    assert len(tokenizer._encoders[False]._cache) < 20


def test_saving_and_loading_changes_nothing(trained, tmp_path):
    trained.save(tmp_path)
    for again in (
        tokenizers.load(str(tmp_path)),
        tokenizers.load(str(tmp_path / 'tokenizer.json')),
        tokenizers.Tokenizer(trained.to_json()),
        pickle.loads(pickle.dumps(trained)),
    ):
        assert again.fingerprint == trained.fingerprint
        assert again.vocab == trained.vocab


def test_the_tokenizer_of_a_run_is_that_of_its_newest_checkpoint(trained, buckets):
    run = buckets / 'bucket/run'
    stored = {'9': {}, '10': {'tokenizer': trained.to_json()}, 'unfinished': {}}
    for name, metadata in stored.items():
        checkpoint = run / 'checkpoints' / name
        checkpoint.mkdir(parents=True)
        (checkpoint / 'metadata.json').write_text(json.dumps(metadata))
    for path in (run, run / 'checkpoints/10', 'gs://bucket/run'):
        assert tokenizers.load(str(path)).fingerprint == trained.fingerprint
    with pytest.raises(errors.UserError, match='contains no tokenizer.json'):
        tokenizers.load(str(run / 'checkpoints/9'))


def test_truncation_and_padding_in_a_file_are_disabled(trained, tmp_path):
    settings = json.loads(trained.to_json())
    settings['truncation'] = {
        'direction': 'Right',
        'max_length': 2,
        'strategy': 'LongestFirst',
        'stride': 0,
    }
    settings['padding'] = {
        'strategy': {'Fixed': 50},
        'direction': 'Right',
        'pad_to_multiple_of': None,
        'pad_id': 0,
        'pad_type_id': 0,
        'pad_token': '[PAD]',
    }
    (tmp_path / 'tokenizer.json').write_text(json.dumps(settings))
    loaded = tokenizers.load(str(tmp_path))
    assert loaded.fingerprint == trained.fingerprint
    text = 'the cat sat on the mat'
    assert len(loaded.encode_batch([text]).ids[0]) == len(trained.encode_batch([text]).ids[0]) > 5


def test_case_is_set_by_the_flag_or_by_the_configuration_of_the_folder(tmp_path):
    path = write_vocab(tmp_path)
    assert tokenizers.load(path).encode_ids(['Cat'])[0].tolist() == [6]
    assert tokenizers.load(path, lowercase=False).encode_ids(['Cat'])[0].tolist() == [8]
    (tmp_path / 'tokenizer_config.json').write_text('{"do_lower_case": false}')
    assert tokenizers.load(str(tmp_path), lowercase=True).encode_ids(['Cat'])[0].tolist() == [8]
    (tmp_path / 'tokenizer_config.json').write_text(
        '{"do_lower_case": true, "strip_accents": false}'
    )
    assert tokenizers.load(str(tmp_path), lowercase=False).encode_ids(['É'])[0].tolist() == [11]


def test_the_tokenizer_may_be_in_the_subfolder_of_early_sentence_transformers(tmp_path):
    folder = tmp_path / '0_Transformer'
    folder.mkdir()
    path = write_vocab(folder)
    assert tokenizers.load(str(tmp_path)).fingerprint == tokenizers.load(path).fingerprint


@pytest.mark.parametrize('token', tokenizers.SPECIAL_TOKENS)
def test_a_vocabulary_without_a_special_token_is_an_error(token, tmp_path):
    path = write_vocab(tmp_path, [t for t in VOCAB if t != token])
    with pytest.raises(errors.UserError, match=rf'vocab.txt.*lacks \[{token[1:-1]}\]'):
        tokenizers.load(path)


def test_a_vocabulary_may_have_windows_line_ends_and_odd_tokens(tmp_path):
    path = tmp_path / 'vocab.txt'
    path.write_bytes('\r\n'.join([*VOCAB, '\u2028', '\x85']).encode())
    assert tokenizers.load(str(path)).vocab == (*VOCAB, '\u2028', '\x85')


@pytest.mark.parametrize(
    ('name', 'content', 'message'),
    [
        ('nowhere', None, 'no such file'),
        ('vocab.txt', b'\xff\xfe', 'UTF-8'),
        ('tokenizer.json', b'{', 'JSON'),
        ('tokenizer.json', b'[]', "no 'model'"),
        ('tokenizer.json', b'{"model": {"type": "Chars"}}', "'Chars'; known: BPE, U"),
        ('tokenizer.json', b'{"model": {"type": "WordPiece"}}', 'cannot read it'),
        ('readme.md', b'x', 'contains no tokenizer.json, vocab.txt'),
    ],
)
def test_invalid_files_are_a_one_line_error(name, content, message, tmp_path):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(errors.UserError, match=message):
        tokenizers.load(str(tmp_path if name == 'readme.md' else path))


@pytest.mark.parametrize('lines', ['\ufeff{}', '{} ', '{}\t\r'])
def test_a_byte_order_mark_and_spaces_are_not_part_of_tokens(lines, tmp_path):
    tokens = [*tokenizers.SPECIAL_TOKENS, 'a', '\u2028', '\xa0', 'b', '##c']
    first, last = lines.split('{}')
    text = first + ''.join(f'{token}{last}\n' for token in tokens)
    (tmp_path / 'vocab.txt').write_bytes(text.encode())
    tokenizer = tokenizers.load(str(tmp_path / 'vocab.txt'))
    assert tokenizer.vocab == tuple(tokens)
    assert tokenizer.encode_batch(['a b bc']).ids[0].tolist() == [5, 8, 8, 9]
    folder = tmp_path / 'folder'
    folder.mkdir()
    for name, value in (('tokenizer.json', tokenizer.to_json()), ('tokenizer_config.json', '{}')):
        (folder / name).write_bytes(f'\ufeff{value}'.encode())
    assert tokenizers.load(str(folder)).fingerprint == tokenizer.fingerprint
