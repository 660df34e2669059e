"""WordPiece equals the tokenizers of `transformers`: its fast one and the original in Python."""

import pathlib

import numpy as np
import pytest

from bert_jax.data import tokenizers

transformers = pytest.importorskip('transformers')
legacy = pytest.importorskip('transformers.models.bert.tokenization_bert_legacy')

WORDS = """
the of and to in a un ##aff ##able ##s ##ing ##ly café cafe ##é ##e naïve 北 京 大 學 ! . , ' - ...
[ ] mask MASK sep SEP The Un ##AFF שלום ##ם не ##т 12 ##3 ##45 % $ ™ é ü ß ##ß 😀 ##x x aa ##aa ##a
i \u0307 İ ǆ ﬁ ##ﬁ א a1 ° ² ##²
"""
LETTERS = [*'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ']
INNER = ['##' + letter for letter in LETTERS]
VOCAB = list(dict.fromkeys([*tokenizers.SPECIAL_TOKENS, *WORDS.split(), *LETTERS, *INNER]))

ODD = {
    'empty': '',
    'blanks': ' \t\n\r  \u00a0\u2003\u3000 ',
    'accents': 'Café naïve ÀÉÎÕÜ ﬁn ß ẞ İstanbul ǅ',
    'decomposed': 'cafe\u0301 Ω\u0304',
    'chinese': '北京大學abc東京タワー 한국어 𠀀𠀁',
    'emoji': 'x😀y 👩‍👩‍👧‍👦 👍🏽 🇫🇷 ❤️ ☎',
    'controls': 'a\x00b\x01c\x7fd\x1fe\u200bf\ufeffg\ufffdh\x85i\u2028j\u00adk',
    'long word': 'a' * 200 + ' ' + 'b' * 100 + ' ' + 'c' * 101,
    'joiners': 'नमस्ते क्\u200dष می\u200cخواهم',
    'right to left': 'שָׁלוֹם עולם السَّلامُ عليكم \u202babc\u202c',
    'tabs and newlines': 'the\tof\nand\r\nto\x0bin\x0ca',
    'punctuation': "don't ... a--b $12.345% «the» “of” ™°² [un]affable_s \\/`~^",
    'specials': 'a [MASK] b[SEP]c [CLS][PAD] [UNK] [mask] [ MASK ]',
    'private and unassigned': 'a\ue000b\U000e0001c\u0378d',
    'combining first': '\u0301a \u0308 b\u0301\u0323c',
    'numbers': '12345 1,234.5 ⅷ ② ٣٤',
}
# The Python tokenizer of transformers composes characters first and deletes private and unassigned
# ones. Google's tokenization.py does neither, nor do the fast tokenizer and ours.
UNLIKE_LEGACY = ('decomposed', 'private and unassigned')


@pytest.fixture(params=[True, False], ids=['uncased', 'cased'])
def trio(request, tmp_path):
    """(ours, fast, legacy), all with the same small vocabulary."""
    path = tmp_path / 'vocab.txt'
    path.write_text('\n'.join(VOCAB) + '\n', encoding='utf-8')
    return _trio(path, request.param)


def _trio(path: pathlib.Path, lowercase: bool):
    vocab = {token: i for i, token in enumerate(path.read_text('utf-8').split('\n')) if token}
    return (
        tokenizers.load(str(path), lowercase),
        transformers.BertTokenizerFast(vocab=vocab, do_lower_case=lowercase),
        legacy.BertTokenizerLegacy(str(path), do_lower_case=lowercase),
    )


def _fast_ids(fast, texts, **options):
    return fast(texts, add_special_tokens=False, **options)['input_ids']


@pytest.mark.parametrize('name', ODD)
def test_odd_strings_with_literal_special_tokens_read_as_such(trio, name):
    ours, fast, original = trio
    encoded = ours.encode_batch([ODD[name]], special=True)
    assert encoded.ids[0].tolist() == _fast_ids(fast, [ODD[name]])[0]
    if name not in UNLIKE_LEGACY:
        assert encoded.ids[0].tolist() == original.encode(ODD[name], add_special_tokens=False)
    offsets = fast(ODD[name], add_special_tokens=False, return_offsets_mapping=True)
    assert encoded.offsets[0].tolist() == [list(span) for span in offsets['offset_mapping']]


@pytest.mark.parametrize('name', ODD)
def test_odd_strings_with_literal_special_tokens_as_text(trio, name):
    ours, fast, _ = trio
    ids = ours.encode_batch([ODD[name]]).ids[0].tolist()
    assert ids == _fast_ids(fast, [ODD[name]], split_special_tokens=True)[0]
    assert not set(ids) & (set(ours.special_ids) - {ours.unk_id})
    assert ours.encode_ids([ODD[name]])[0].tolist() == ids


def test_decode(trio):
    ours, fast, _ = trio
    ids = [ours.cls_id, *ours.encode_ids(["the unaffable, don't!"])[0], ours.mask_id, ours.sep_id]
    assert ours.decode(ids) == fast.decode(ids)


def test_published_vocabulary_on_real_text(real_data):
    path = real_data / 'vocab_bert_base_uncased' / 'vocab.txt'
    ours, fast, original = _trio(path, lowercase=True)
    lines = (real_data / 'wikitext2_valid' / 'valid.txt').read_text('utf-8').split('\n')
    lines += [text for name, text in ODD.items() if name not in UNLIKE_LEGACY]
    encoded = ours.encode_batch(lines, special=True)
    ids = [text_ids.tolist() for text_ids in encoded.ids]
    tokens = sum(map(len, ids))
    assert tokens > 200_000
    fast_encoded = fast(lines, add_special_tokens=False, return_offsets_mapping=True)
    assert ids == fast_encoded['input_ids']
    assert [o.tolist() for o in encoded.offsets] == [
        [list(span) for span in spans] for spans in fast_encoded['offset_mapping']
    ]
    original_ids = [original.encode(line, add_special_tokens=False) for line in lines]
    assert ids == original_ids
    plain, lengths = ours.encode_ids(lines)
    split_ids = _fast_ids(fast, lines, split_special_tokens=True)
    assert lengths.tolist() == list(map(len, split_ids))
    np.testing.assert_array_equal(plain, np.concatenate([np.array(i, int) for i in split_ids]))
    print(f'{len(lines)} lines, {tokens} tokens equal')
