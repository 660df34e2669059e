"""Byte-level BPE and SentencePiece have the ids and offsets of their reference libraries.

The references are `transformers` and `sentencepiece`; the texts are real text and odd strings.
"""

import io
import json
import shutil
from typing import NamedTuple

import numpy as np
import pytest
import sentencepiece
import tokenizers as library

from bert_jax import tokenizers
from bert_jax.tokenizers import sentence_piece
from tests.parity.odd_strings import ODD

transformers = pytest.importorskip('transformers')

SIZE = 3000
ROBERTA = ['<s>', '<pad>', '</s>', '<unk>', '<mask>']
BERT = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
# As in the published folders; the classes of transformers 5 do not strip the space before it.
MASK = library.AddedToken('<mask>', lstrip=True, special=True)
PROMPTS = ['The capital of France is <mask>.', 'a [MASK] b[SEP]c <s>d</s> <unk>e']


class Published(NamedTuple):
    """A tokenizer of transformers, its files, and the layout of one text and of two."""

    tokenizer: object
    files: dict[str, bytes]  # of an older folder, without tokenizer.json
    kind: str
    one: str
    two: str


@pytest.fixture(scope='session')
def training_lines(real_data):
    """Lines in three scripts."""
    lines = []
    for name in ('english_novels/*', 'bible_small_langs/Ukr*', 'bible_small_langs/Guj*'):
        path = max(real_data.glob(name), key=lambda path: path.stat().st_size)
        lines += path.read_bytes()[:120_000].decode('utf-8', 'replace').splitlines()
    return lines


@pytest.fixture(scope='session')
def real_lines(real_data):
    return (real_data / 'wikitext2_valid' / 'valid.txt').read_text('utf-8').split('\n')[::3]


def byte_level(lines, special, **options):
    trained = library.ByteLevelBPETokenizer(**options)
    trained.train_from_iterator(lines, vocab_size=SIZE, special_tokens=special, show_progress=False)
    model = json.loads(trained.to_str())['model']
    return model['vocab'], [tuple(pair) for pair in model['merges']]


def train_sentencepiece(lines, model_type='unigram', **options) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type=model_type,
        vocab_size=SIZE,
        minloglevel=3,
        **options,
    )
    return model.getvalue()


def scores(data: bytes) -> list[tuple[str, float]]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=data)
    number = range(processor.vocab_size())
    return [(processor.id_to_piece(i), processor.get_score(i)) for i in number]


def roberta(lines):
    vocab, merges = byte_level(lines, ROBERTA)
    text = '#version: 0.2\n' + ''.join(f'{left} {right}\n' for left, right in merges)
    files = {
        'vocab.json': json.dumps(vocab).encode(),
        'merges.txt': text.encode(),
        'tokenizer_config.json': b'{"tokenizer_class": "RobertaTokenizer"}',
    }
    made = transformers.RobertaTokenizerFast(vocab=vocab, merges=merges, mask_token=MASK)
    return Published(made, files, 'bytebpe', '<s> A </s>', '<s> A </s> </s> B </s>')


def modernbert(lines):
    vocab, merges = byte_level(lines, [*BERT, '|||IP|||'])
    backend = library.Tokenizer(library.models.BPE(vocab, merges))
    backend.normalizer = library.normalizers.NFC()
    backend.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = library.decoders.ByteLevel()
    backend.add_tokens(['|||IP|||', '    '])
    backend.post_processor = library.processors.TemplateProcessing(
        single='[CLS] $A [SEP]',
        pair='[CLS] $A [SEP] $B:1 [SEP]:1',
        special_tokens=[(name, vocab[name]) for name in ('[CLS]', '[SEP]')],
    )
    names = dict(zip(('pad', 'unk', 'cls', 'sep', 'mask'), BERT, strict=True))
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, **{f'{role}_token': name for role, name in names.items()}
    )
    return Published(made, {}, 'bytebpe', '[CLS] A [SEP]', '[CLS] A [SEP] B [SEP]')


def xlmr(lines):
    data = train_sentencepiece(lines)
    first = [(name, 0.0) for name in ('<s>', '<pad>', '</s>', '<unk>')]
    made = transformers.XLMRobertaTokenizer(
        vocab=[*first, *scores(data)[3:], ('<mask>', 0.0)],
        _spm_precompiled_charsmap=sentence_piece.read(data).charsmap,
        mask_token=MASK,
    )
    files = {'sentencepiece.bpe.model': data, 'config.json': b'{"model_type": "xlm-roberta"}'}
    return Published(made, files, 'unigram', '<s> A </s>', '<s> A </s> </s> B </s>')


def albert(lines):
    data = train_sentencepiece(
        [line.lower() for line in lines],
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        bos_piece='[CLS]',
        eos_piece='[SEP]',
        control_symbols=['[MASK]'],
    )
    made = transformers.AlbertTokenizer(
        vocab=scores(data), _spm_precompiled_charsmap=sentence_piece.read(data).charsmap
    )
    files = {
        'spiece.model': data,
        'tokenizer_config.json': b'{"tokenizer_class": "AlbertTokenizerFast"}',
    }
    return Published(made, files, 'unigram', '[CLS] A [SEP]', '[CLS] A [SEP] B [SEP]')


def deberta(lines):
    data = train_sentencepiece(
        lines,
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        pad_piece='[PAD]',
        bos_piece='[CLS]',
        eos_piece='[SEP]',
        unk_piece='[UNK]',
    )
    made = transformers.DebertaV2Tokenizer(vocab=[*scores(data), ('[MASK]', 0.0)], unk_id=3)
    # This class ignores the normalization of the .model, so only tokenizer.json is equivalent.
    return Published(made, {}, 'unigram', '[CLS] A [SEP]', '[CLS] A [SEP] B [SEP]')


@pytest.fixture(scope='session', params=[roberta, modernbert, xlmr, albert, deberta])
def published(request, training_lines) -> Published:
    return request.param(training_lines)


@pytest.fixture(params=['tokenizer.json', 'older files'])
def ours(request, published, tmp_path):
    """Our tokenizer, loaded from a folder written by transformers or from the older files."""
    if request.param == 'tokenizer.json':
        published.tokenizer.save_pretrained(tmp_path)
    elif not published.files:
        pytest.skip('published with tokenizer.json only')
    else:
        for name, data in published.files.items():
            (tmp_path / name).write_bytes(data)
    return tokenizers.load(str(tmp_path))


def test_odd_strings_and_prompts_have_equal_ids(published, ours):
    texts = [*ODD.values(), *PROMPTS]
    theirs = published.tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)
    encoded = ours.encode_batch(texts, special=True)
    for text, ids, spans, *other in zip(
        texts,
        encoded.ids,
        encoded.offsets,
        theirs['input_ids'],
        theirs['offset_mapping'],
        strict=True,
    ):
        assert ids.tolist() == other[0], repr(text)
        assert spans.tolist() == [list(span) for span in other[1]], repr(text)


def test_real_text_has_equal_ids(published, ours, real_lines):
    theirs = published.tokenizer(real_lines, add_special_tokens=False, return_offsets_mapping=True)
    encoded = ours.encode_batch(real_lines, special=True)
    assert sum(map(len, encoded.ids)) > 80_000
    assert [ids.tolist() for ids in encoded.ids] == theirs['input_ids']
    assert [spans.tolist() for spans in encoded.offsets] == [
        [list(span) for span in spans] for spans in theirs['offset_mapping']
    ]
    some = [*real_lines[:1000], *ODD.values(), *PROMPTS]
    ids, lengths = ours.encode_ids(some)
    expected = ours.encode_batch(some).ids
    assert lengths.tolist() == [len(text_ids) for text_ids in expected]
    np.testing.assert_array_equal(ids, np.concatenate(expected))
    # The text contains <unk> many times; it must not become the special token.
    assert '<unk>' in ''.join(some)
    assert not np.isin(ids, [i for i in ours.special_ids if i != ours.unk_id]).any()
    if ours.kind == 'bytebpe':
        assert ours.unk_id not in ids


def test_special_tokens_and_layouts_are_equal(published, ours):
    assert ours.kind == published.kind
    for role in ('pad', 'unk', 'cls', 'sep', 'mask'):
        assert getattr(ours, f'{role}_id') == getattr(published.tokenizer, f'{role}_token_id')
    a, b = ours.encode_batch(['hello', 'world wide']).ids
    special = {'A': a, 'B': b}
    again = transformers.PreTrainedTokenizerFast(
        tokenizer_object=library.Tokenizer.from_str(ours.to_json())
    )
    for frame, texts in ((published.one, ['hello']), (published.two, ['hello', 'world wide'])):
        wanted = np.concatenate(
            [special[p] if p in special else [ours.vocab.index(p)] for p in frame.split(' ')]
        )
        assert again(*texts)['input_ids'] == published.tokenizer(*texts)['input_ids']
        assert again(*texts)['input_ids'] == wanted.tolist()


@pytest.mark.parametrize('model_type', ['unigram', 'bpe'])
@pytest.mark.parametrize(
    'options',
    [{}, {'byte_fallback': True}, {'remove_extra_whitespaces': False}, {'add_dummy_prefix': False}],
    ids=['plain', 'byte fallback', 'all spaces', 'no dummy prefix'],
)
def test_ids_of_a_model_file_equal_those_of_sentencepiece(
    model_type, options, training_lines, real_lines, tmp_path
):
    data = train_sentencepiece(training_lines, model_type, **options)
    (tmp_path / 'some.model').write_bytes(data)
    ours = tokenizers.load(str(tmp_path / 'some.model'))
    theirs = sentencepiece.SentencePieceProcessor(model_proto=data)
    assert ours.kind == {'unigram': 'unigram', 'bpe': 'sentencepiece-bpe'}[model_type]
    assert ours.vocab[: theirs.vocab_size()] == tuple(piece for piece, _ in scores(data))
    assert ours.vocab[theirs.vocab_size() :] == ('<pad>', '<mask>')
    # `tokenizers` treats U+0085 as a space and \r\n as one character; SentencePiece does not.
    texts = [text.replace('\x85', '').replace('\r\n', '\n') for text in ODD.values()]
    texts += real_lines[:1500]
    found = [[ours.vocab[i] for i in ids] for ids in ours.encode_batch(texts).ids]
    assert found == [theirs.encode(text, out_type=str, emit_unk_piece=True) for text in texts]


def test_the_option_ids_selects_those_of_xlmr(training_lines, tmp_path):
    data = train_sentencepiece(training_lines)
    path = tmp_path / 'sentencepiece.bpe.model'
    path.write_bytes(data)
    as_in_file = tokenizers.load(str(path))
    shifted = tokenizers.load(f'{path};ids=xlm-roberta')
    text = 'The whale, the whale!'
    before = as_in_file.encode_batch([text]).ids[0]
    np.testing.assert_array_equal(shifted.encode_batch([text]).ids[0], before + 1)
    assert shifted.vocab[:4] == ('<s>', '<pad>', '</s>', '<unk>')
    assert shifted.vocab[-1] == '<mask>'
    assert shifted.vocab_size == SIZE + 2


def test_the_published_vocabulary_of_gpt2_has_equal_ids(real_data, real_lines, tmp_path):
    folder = real_data / 'vocab_gpt2_bpe'
    ours = tokenizers.load(str(folder))
    shutil.copy(folder / 'gpt2-vocab.json', tmp_path / 'vocab.json')
    shutil.copy(folder / 'gpt2-merges.txt', tmp_path / 'merges.txt')
    theirs = transformers.GPT2TokenizerFast.from_pretrained(tmp_path)
    encoded = ours.encode_batch(real_lines)
    other = theirs(real_lines, return_offsets_mapping=True)
    assert [ids.tolist() for ids in encoded.ids] == other['input_ids']
    assert ours.vocab[50257:] == ('<pad>', '<unk>', '<s>', '</s>', '<mask>')
    assert ours.is_word_start.sum() > 30_000
    assert ours.lowercase is False
    assert ours.decode(encoded.ids[1]) == real_lines[1]
