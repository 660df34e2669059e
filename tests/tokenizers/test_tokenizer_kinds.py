"""Properties of all kinds of tokenizers; test_tokenizers.py has those of WordPiece."""

import json
import pickle
import random

import numpy as np
import pytest
import tokenizers as library
from hypothesis import given, settings, strategies

from bert_jax import errors, tokenizers
from bert_jax.corpus import workers
from bert_jax.text.sources import Document
from bert_jax.tokenizers import byte_bpe, sentence_piece

RANDOM = random.Random(0)
TEXT = ' '.join(
    ''.join(RANDOM.choices('abcdefghimnost', k=RANDOM.randint(2, 7))) for _ in range(900)
)
TEXT += (
    '\n\n'
    + (
        'The cat sat on the mat. The dogs were sitting on the mats, and the cats sat with them!\n'
        'Sitting cats; walking dogs: a <b>bold</b> <s>dog</s>. Naïve cafés in 北京 and Москва.\n\n'
    )
    * 5
)
SPECS = {
    'wordpiece': 'wordpiece:120',
    'bytebpe': 'bytebpe:320',
    'unigram': 'unigram:90',
    'sentencepiece-bpe': 'sentencepiece-bpe:90',
}
SUBWORD = [kind for kind in SPECS if kind != 'wordpiece']
TRAINED = {
    (kind, lowercase): tokenizers.train(spec, [TEXT], lowercase)
    for kind, spec in SPECS.items()
    for lowercase in (True, False)
}


@pytest.fixture(params=SPECS)
def kind(request):
    return request.param


@pytest.fixture
def tokenizer(kind):
    return TRAINED[kind, False]


def tokens_of(tokenizer, text, **options):
    return [tokenizer.vocab[i] for i in tokenizer.encode_batch([text], **options).ids[0]]


def test_training_makes_the_requested_kind_case_and_size(kind):
    for lowercase in (True, False):
        made = TRAINED[kind, lowercase]
        assert made.kind == kind
        assert made.lowercase is lowercase
        assert made.vocab_size == len(set(made.vocab)) == int(SPECS[kind].partition(':')[2])
        assert (tokens_of(made, 'THE Dogs') == tokens_of(made, 'the dogs')) == lowercase
        assert 'dogs' in made.decode(made.encode_batch(['The dogs']).ids[0])


def test_training_is_deterministic(kind):
    again = tokenizers.train(SPECS[kind], [TEXT], True)
    assert again.fingerprint == TRAINED[kind, True].fingerprint
    other = tokenizers.train(SPECS[kind], [TEXT + ' zebra zebras' * 500], True)
    assert other.fingerprint != again.fingerprint


@pytest.mark.parametrize('kind', SUBWORD)
def test_special_tokens_are_those_of_xlmr(kind):
    made = TRAINED[kind, True]
    assert made.vocab[:5] == ('<s>', '<pad>', '</s>', '<unk>', '<mask>')
    assert (made.pad_id, made.unk_id, made.cls_id, made.sep_id, made.mask_id) == (1, 3, 0, 2, 4)
    assert set(made.special_ids) == set(range(5))


def test_saving_and_loading_changes_nothing(tokenizer, tmp_path):
    tokenizer.save(tmp_path)
    for again in (
        tokenizers.load(str(tmp_path)),
        tokenizers.Tokenizer(tokenizer.to_json()),
        pickle.loads(pickle.dumps(tokenizer)),
    ):
        assert again.fingerprint == tokenizer.fingerprint
        assert again.kind == tokenizer.kind
        np.testing.assert_array_equal(again.encode_ids([TEXT])[0], tokenizer.encode_ids([TEXT])[0])


def test_word_starts_mark_the_words_of_a_text(tokenizer):
    assert tokenizer.is_word_start.dtype == bool
    markers = {*tokenizer.special_ids} - {tokenizer.unk_id}
    assert not tokenizer.is_word_start[list(markers)].any()
    assert tokenizer.is_word_start[tokenizer.unk_id] == (tokenizer.kind == 'wordpiece')
    text = 'The dogs sat with cafés and them'
    ids = tokenizer.encode_batch([text]).ids[0]
    assert len(ids) > len(text.split())
    assert tokenizer.is_word_start[ids].sum() == len(text.split())
    assert tokenizer.is_word_start[ids[0]]


def test_is_word_start_is_none_for_a_vocabulary_without_marks():
    for settings_of in (
        lambda: byte_bpe.settings({'a': 0, 'b': 1, 'ab': 2}, [['a', 'b']]),
        lambda: with_vocab(TRAINED['wordpiece', True], lambda token: token.lstrip('#')),
        lambda: json.loads(character_bpe().to_str()),
    ):
        made = tokenizers.Tokenizer(json.dumps(settings_of()))
        assert made.is_word_start is None
    assert made.kind == 'bpe'


def with_vocab(tokenizer, change):
    found = json.loads(tokenizer.to_json())
    vocab = found['model']['vocab']
    found['model']['vocab'] = {change(token) or token: vocab[token] for token in vocab}
    return found


def character_bpe():
    names = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'a', 'b</w>']
    vocab = {name: index for index, name in enumerate(names)}
    model = library.models.BPE(vocab, [], unk_token='[UNK]', end_of_word_suffix='</w>')
    return library.Tokenizer(model)


ODD_TEXTS = strategies.lists(
    strategies.text(
        strategies.sampled_from(' \t\n\r\x00\x1c\x85\u00a0\u2028\u200d\u0301aéB.<s>/▁Ġ北😀\ud83d')
    ),
    max_size=4,
)


@pytest.mark.parametrize('kind', SPECS)
@pytest.mark.parametrize('lowercase', [True, False])
@settings(max_examples=150, deadline=None)
@given(texts=ODD_TEXTS)
def test_cached_encoding_equals_plain_encoding_without_special_tokens(kind, lowercase, texts):
    made = TRAINED[kind, lowercase]
    ids, lengths = made.encode_ids(texts)
    expected = made.encode_batch(texts).ids
    assert lengths.tolist() == [len(e) for e in expected]
    assert ids.tolist() == [i for e in expected for i in e]
    assert not set(ids.tolist()) & (set(made.special_ids) - {made.unk_id})


def test_literal_special_tokens_are_text_by_default(tokenizer):
    cls, sep, mask = (
        tokenizer.vocab[i] for i in (tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    )
    text = f'{cls}the {mask} dogs{sep}'
    special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}
    assert not special & set(tokenizer.encode_batch([text]).ids[0].tolist())
    assert not special & set(tokenizer.encode_ids([text])[0].tolist())
    encoded = tokenizer.encode_batch([text], special=True)
    assert special < set(encoded.ids[0].tolist())
    start, end = encoded.offsets[0][encoded.ids[0].tolist().index(tokenizer.mask_id)]
    assert text[start:end].strip() == mask


def test_literal_special_tokens_in_training_text_are_not_learned():
    for kind in SUBWORD:
        text = 'some <s>struck words</s> and <unk> and <mask> here ' * 50
        made = tokenizers.train(f'{kind}:300', [text])
        pieces = made.vocab[5:]
        assert not [piece for piece in pieces if '<s>' in piece or '<unk>' in piece]
        ids = made.encode_batch([text]).ids[0]
        assert not set(ids) & set(made.special_ids)


def test_offsets_refer_to_the_original_text(tokenizer):
    text = 'The  dogs, naïve\tcafés\u00a0sat in Mocквa!'
    encoded = tokenizer.encode_batch([text, ''])
    covered = np.zeros(len(text), bool)
    for index, (start, end) in zip(encoded.ids[0], encoded.offsets[0], strict=True):
        assert 0 <= start <= end <= len(text)
        covered[start:end] = True
        piece, token = text[start:end].strip(), tokenizer.vocab[index]
        if index == tokenizer.unk_id or not piece:
            continue
        if tokenizer.kind == 'bytebpe':  # bytes, perhaps only some of those of a character
            alphabet = bytes_to_letters()
            letters = ''.join(alphabet[byte] for byte in piece.encode())
            assert token.removeprefix('Ġ') in letters
        else:
            assert token.removeprefix('##').removeprefix('▁') in ('', piece)
    assert {text[i] for i in np.flatnonzero(~covered)} <= {' ', '\t', '\u00a0'}
    assert encoded.offsets[1].shape == (0, 2)
    assert encoded.ids[1].dtype == np.int32


def bytes_to_letters():
    """GPT-2's letter for each byte: itself if printable Latin 1, else U+0100 and up."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (byte for byte in range(256) if byte not in printable)
    return {byte: chr(byte) for byte in printable} | {
        byte: chr(256 + number) for number, byte in enumerate(others)
    }


@pytest.mark.parametrize('kind', SUBWORD)
def test_decoding_restores_the_text(kind):
    made = TRAINED[kind, False]
    ids = made.encode_batch(['The dogs sat with cafés.']).ids[0]
    text = made.decode([made.cls_id, *ids, made.mask_id])
    assert text.replace('<s>', '').replace('<mask>', '').strip() == 'The dogs sat with cafés.'
    assert text.startswith('<s>')


@pytest.mark.parametrize('spec', ['unigram:30', 'sentencepiece-bpe:30', 'bytebpe:260'])
def test_a_vocabulary_size_that_is_too_small_is_an_error(spec):
    with pytest.raises(errors.UserError, match='is too small'):
        tokenizers.train(spec, [TEXT])


@pytest.mark.parametrize('kind', SPECS)
def test_training_text_without_words_is_an_error(kind):
    with pytest.raises(errors.UserError, match='has no words'):
        tokenizers.train(f'{kind}:300', ['', ' \n '])


def test_a_text_too_short_for_the_size_gives_a_smaller_vocabulary(kind):
    made = tokenizers.train(f'{kind}:5000', [TEXT])
    assert 60 < made.vocab_size < 5000


def test_sentences_are_encoded_as_in_running_text():
    """With a vocabulary like RoBERTa's, which has no Ġ before the first word of a text."""
    trained = json.loads(TRAINED['bytebpe', False].to_json())['model']
    plain = tokenizers.Tokenizer(json.dumps(byte_bpe.settings(trained['vocab'], trained['merges'])))
    assert not tokens_of(plain, 'dogs sat')[0].startswith('Ġ')
    assert plain.sentence_prefix == ' '
    document = Document('The dogs sat. The cat sat.', 'test')
    block = workers.tokenize_block(workers.TextBlock([document]), plain)
    whole = plain.encode_ids([' The dogs sat. The cat sat.'])[0]
    np.testing.assert_array_equal(block.documents.tokens, whole)
    assert len(block.documents.sentence_lengths) == 2
    for other in TRAINED.values():
        assert other.sentence_prefix == ''


def test_a_folder_may_only_contain_one_tokenizer(tmp_path):
    trained = json.loads(TRAINED['bytebpe', False].to_json())['model']
    merges = '#version: 0.2\n' + '\n'.join(map(' '.join, trained['merges'])) + '\n'
    (tmp_path / 'gpt-vocab.json').write_text(json.dumps(trained['vocab']))
    (tmp_path / 'gpt-merges.txt').write_text(merges)
    read = tokenizers.load(str(tmp_path))
    assert read.kind == 'bytebpe'
    assert read.lowercase is False
    assert tokens_of(read, ' The dogs') == tokens_of(TRAINED['bytebpe', False], 'The dogs')
    assert tokenizers.load(str(tmp_path / 'gpt-vocab.json')).fingerprint == read.fingerprint
    assert tokenizers.has_tokenizer(tmp_path)
    (tmp_path / 'tokenizer_config.json').write_text('{"add_prefix_space": true}')
    assert tokens_of(tokenizers.load(str(tmp_path)), 'dogs') == tokens_of(read, ' dogs')
    (tmp_path / 'other-vocab.json').write_text('{}')
    with pytest.raises(errors.UserError, match='gpt-vocab.json, other-vocab.json: name one'):
        tokenizers.load(str(tmp_path))


@pytest.fixture(scope='module')
def model_file(tmp_path_factory):
    """A SentencePiece model with the library's default ids: <unk> <s> </s> …"""
    path = tmp_path_factory.mktemp('spm') / 'm'
    sentence_piece.sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.splitlines()),
        model_prefix=str(path),
        vocab_size=90,
        hard_vocab_limit=False,
        minloglevel=3,
    )
    return path.with_suffix('.model')


def test_the_configuration_of_a_folder_determines_the_ids(model_file, tmp_path):
    (tmp_path / 'some.model').write_bytes(model_file.read_bytes())
    plain = tokenizers.load(str(tmp_path))
    assert plain.vocab[:3] == ('<unk>', '<s>', '</s>')
    assert plain.vocab[-2:] == ('<pad>', '<mask>')
    config = tmp_path / 'tokenizer_config.json'
    config.write_text('{"tokenizer_class": "XLMRobertaTokenizerFast"}')
    shifted = tokenizers.load(str(tmp_path))
    assert shifted.vocab[:4] == ('<s>', '<pad>', '</s>', '<unk>')
    explicit = tokenizers.load(f'{tmp_path}/some.model;ids=xlm-roberta')
    assert explicit.fingerprint == shifted.fingerprint
    config.write_text('{"tokenizer_class": "AlbertTokenizer", "keep_accents": true}')
    lowered = tokenizers.load(str(tmp_path))
    assert lowered.lowercase
    assert tokens_of(lowered, 'CAFÉS') == tokens_of(plain, 'cafés')
    config.write_text('{"tokenizer_class": "FNetTokenizer"}')
    with pytest.raises(errors.UserError, match='FNetTokenizer is not supported without a tok'):
        tokenizers.load(str(tmp_path))


@pytest.mark.parametrize(
    ('name', 'content', 'message'),
    [
        ('a.model', b'\x00\x01 nonsense', 'not a SentencePiece model'),
        ('a.model', b'', 'not a SentencePiece model'),
        ('a.model;ids=bert', None, "option 'ids=bert'; did you mean ids=mbart. known: "),
        ('vocab.json', b'{"a": 1', 'not valid JSON'),
        ('vocab.json', b'["a"]', 'not a vocabulary'),
        ('vocab.json', b'{"a": 0, "b": 1}', "merges.txt, line 2: 'a b' is not a pair of"),
        ('vocab.txt;ids=file', b'a', "'ids=file' is for SentencePiece models"),
    ],
)
def test_invalid_files_are_a_one_line_error(name, content, message, tmp_path, model_file):
    (tmp_path / 'merges.txt').write_text('#version: 0.2\na b\n')
    path = tmp_path / name.partition(';')[0]
    path.write_bytes(model_file.read_bytes() if content is None else content)
    with pytest.raises(errors.UserError, match=message):
        tokenizers.load(str(tmp_path / name))


def test_a_truncated_model_is_an_error(model_file, tmp_path):
    data = model_file.read_bytes()
    (tmp_path / 'cut.model').write_bytes(data[: len(data) // 2])
    with pytest.raises(errors.UserError, match='not a SentencePiece model'):
        tokenizers.load(str(tmp_path / 'cut.model'))


@pytest.mark.parametrize('model_type', ['unigram', 'bpe'])
def test_ids_of_a_model_file_equal_those_of_sentencepiece(model_type, tmp_path):
    library_of = sentence_piece.sentencepiece
    library_of.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.splitlines()),
        model_prefix=str(tmp_path / 'm'),
        model_type=model_type,
        vocab_size=100,
        hard_vocab_limit=False,
        minloglevel=3,
    )
    theirs = library_of.SentencePieceProcessor(model_file=str(tmp_path / 'm.model'))
    ours = tokenizers.load(str(tmp_path))
    texts = [
        *TEXT.splitlines(),
        'Ｔhe ｃat ﬁts \u00bd Ⅷ',
        '  naïve\u3000cafe\u0301s\t',
        'x' * 300,
        '',
    ]
    found = [ids.tolist() for ids in ours.encode_batch(texts).ids]
    assert found == [theirs.encode(text) for text in texts]
    assert tokens_of(ours, 'Ｔhe ｃat') == tokens_of(ours, 'The cat')
