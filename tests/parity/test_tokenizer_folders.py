"""Tokenizers of Hugging Face folders have the ids of AutoTokenizer, in every layout.

The reference is transformers 5. Where version 4 differs, see `bert_jax/tokenizers/classes.py`.
"""

import importlib
import pathlib
import re
import types

import numpy as np
import pytest
import sentencepiece

from bert_jax import errors, tokenizers
from bert_jax.tokenizers import sentence_piece
from bert_jax.tokenizers.special_token_layout import SpecialTokenLayout
from tests.parity import tokenizer_folders
from tests.parity.odd_strings import ODD
from tests.parity.tokenizer_folders import DEBERTA_PIECES, LAYOUTS, SENTENCES

transformers = pytest.importorskip('transformers')

# The Python tokenizer of BertJapanese deletes these characters; Google's and the library's do not.
UNLIKE = {'private and unassigned', 'controls'}
LINES = [*SENTENCES, *(line.upper() for line in SENTENCES)]
LINES += [' '.join(pair) for pair in zip(SENTENCES, SENTENCES[5:], strict=False)]
LINES += [text for name, text in ODD.items() if name not in UNLIKE]


@pytest.fixture(autouse=True)
def without_protobuf(monkeypatch):
    """Let transformers read .model files with any version of protobuf."""

    def read(self, path):
        model = sentence_piece.read(pathlib.Path(path).read_bytes())
        pieces = [types.SimpleNamespace(piece=p, score=s, type=kind) for p, s, kind in model.pieces]
        unknown = next(index for index, piece in enumerate(pieces) if piece.type == 2)
        self.proto = types.SimpleNamespace(
            pieces=pieces,
            trainer_spec=types.SimpleNamespace(unk_id=unknown, model_type=1),
            normalizer_spec=types.SimpleNamespace(precompiled_charsmap=model.charsmap),
        )

    module = importlib.import_module('transformers.convert_slow_tokenizer')
    monkeypatch.setattr(module.SentencePieceExtractor, '__init__', read)


@pytest.fixture(params=LAYOUTS)
def folder(request, tmp_path):
    return tokenizer_folders.write(LAYOUTS[request.param](), tmp_path)


def different(ours, theirs, lines):
    """The lines whose ids differ, with both tokenizations."""
    found = ours.encode_batch(lines, special=True).ids
    expected = [theirs(line, add_special_tokens=False)['input_ids'] for line in lines]
    return [
        (line, [ours.vocab[i] for i in own], theirs.convert_ids_to_tokens(other))
        for line, own, other in zip(lines, found, expected, strict=True)
        if own.tolist() != other
    ]


def test_ids_equal_those_of_transformers(folder):
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), tokenizers.load(str(folder))
    lines = LINES
    if isinstance(theirs, transformers.AlbertTokenizer | transformers.XLNetTokenizer):
        # transformers decomposes Korean syllables for ALBERT and XLNet and does not compose them
        # again, as sentencepiece does: test_sentencepiece_parity.py has these ids.
        lines = [line for line in LINES if not re.search('[가-힣]', line)]
    if isinstance(theirs, transformers.MBartTokenizer):
        # transformers 5 ignores the rules of the model for mBART, version 4 applies them.
        normalize = ours._special.library.normalizer.normalize_str
        lines = [line for line in LINES if normalize(line) == line]
        assert len(lines) > 20
    assert different(ours, theirs, lines) == []
    assert ours.vocab_size == max(theirs.get_vocab().values()) + 1
    layout, (text,) = SpecialTokenLayout(ours, 512, 1), ours.encode_ids(['x'])[:1]
    assert layout.lay_out(text).ids.tolist() == theirs('x')['input_ids']
    for role in ('pad', 'unk', 'mask'):
        expected = getattr(theirs, f'{role}_token_id')
        assert expected is None or expected == ours.role_ids[role]


@pytest.mark.slow
def test_ids_of_five_thousand_lines_equal_those_of_transformers(folder, real_data):
    lines = []
    for path in sorted(real_data.glob('bible_small_langs/*.txt')):
        lines += path.read_text('utf-8', 'replace').splitlines()[:350]
    lines += (real_data / 'wikitext2_valid' / 'valid.txt').read_text('utf-8').splitlines()[:1500]
    assert len(lines) >= 5000
    theirs, ours = transformers.AutoTokenizer.from_pretrained(folder), tokenizers.load(str(folder))
    assert different(ours, theirs, lines)[:3] == []


def test_a_model_of_deberta_has_the_ids_of_sentencepiece(tmp_path):
    data = tokenizer_folders.pieces(**DEBERTA_PIECES)
    size = len(tokenizer_folders.scores(data))
    config = {'do_lower_case': False, 'split_by_punct': False, 'vocab_type': 'spm'}
    files = {'spm.model': data, 'config': {'model_type': 'deberta-v2'}}
    files |= {'tokenizer_config': config, 'added_tokens': {'[MASK]': size}}
    ours = tokenizers.load(str(tokenizer_folders.write(files, tmp_path)))
    processor = sentencepiece.SentencePieceProcessor(model_proto=data)
    lines = [line for line in LINES if '[' not in line and '\r' not in line]
    assert [ids.tolist() for ids in ours.encode_batch(lines).ids] == processor.encode(lines)
    assert (ours.mask_id, ours.vocab_size) == (size, size + 1)
    assert (ours.pad_id, ours.cls_id, ours.sep_id, ours.unk_id) == (0, 1, 2, 3)
    files['tokenizer_config'] = config | {'split_by_punct': True}
    ours = tokenizers.load(str(tokenizer_folders.write(files, tmp_path)))
    split = ours.encode_batch(["don't"]).ids[0]
    np.testing.assert_array_equal(split, np.concatenate(ours.encode_batch(['don', "'", 't']).ids))


def test_a_cased_vocabulary_that_is_lowercased_is_reported(tmp_path, capsys):
    for files, is_reported in (
        (tokenizer_folders.bert(), True),
        (tokenizer_folders.bert(tokenizer_config={'do_lower_case': True}), False),
        (tokenizer_folders.bert(tokenizer_config={'do_lower_case': False}), False),
    ):
        tokenizers.load(str(tokenizer_folders.write(files, tmp_path)))
        assert ('"do_lower_case": false there' in capsys.readouterr().err) == is_reported


def test_an_added_token_with_another_id_is_reported(tmp_path, capsys):
    files = tokenizer_folders.bert(added_tokens={'<ent>': 9999})
    tokenizers.load(str(tokenizer_folders.write(files, tmp_path)))
    assert 'but its folder has id 9999' in capsys.readouterr().err


def test_characters_after_mecab_need_no_dictionary(tmp_path):
    files = tokenizer_folders.japanese('mecab', 'character')
    ours = tokenizers.load(str(tokenizer_folders.write(files, tmp_path)))
    tokens = [ours.vocab[i] for i in ours.encode_batch(['東京 Ａ\u3000は\n㈱\rx']).ids[0]]
    assert ''.join(t if len(t) == 1 else '?' for t in tokens) == '東京Aは(?)?x'


@pytest.mark.parametrize(
    ('files', 'message'),
    [
        (
            lambda: tokenizer_folders.japanese('mecab', 'wordpiece'),
            'needs a morphological analyzer',
        ),
        (
            lambda: tokenizer_folders.japanese('sudachi', 'character'),
            'needs a morphological analyzer',
        ),
        (
            lambda: tokenizer_folders.bert(
                tokenizer_config={'tokenizer_class': 'BertweetTokenizer'}
            ),
            'tokenizer_class BertweetTokenizer is not supported without a tokenizer.json',
        ),
        (
            lambda: tokenizer_folders.bert_json(False, special_tokens_map={'mask_token': '[CLS]'}),
            r"mask_token is '\[CLS\]', but the tokenizer has '\[MASK\]'",
        ),
    ],
)
def test_what_cannot_be_reproduced_is_refused(files, message, tmp_path):
    with pytest.raises(errors.UserError, match=message):
        tokenizers.load(str(tokenizer_folders.write(files(), tmp_path)))


@pytest.mark.parametrize(
    ('name', 'content', 'message'),
    [
        ('tokenizer_config', {'do_lower_case': 'no'}, "do_lower_case is 'no', expected bool"),
        ('tokenizer_config', {'tokenizer_class': 3}, 'tokenizer_class is 3, expected str'),
        ('tokenizer_config', {'mask_token': 3}, 'the special token 3 must be a string'),
        ('tokenizer_config', {'added_tokens_decoder': {'x': {}}}, 'must be ids'),
        ('tokenizer_config', {'added_tokens_decoder': {'1': {}}}, 'special token {} must be'),
        ('tokenizer_config', [], 'not a JSON object'),
        ('added_tokens', {'x': 'y'}, 'an object from tokens to ids'),
        ('special_tokens_map', {'cls_token': ['a']}, 'must be a string'),
    ],
)
def test_malformed_options_are_a_one_line_error(name, content, message, tmp_path):
    files = tokenizer_folders.bert(**{name: content})
    with pytest.raises(errors.UserError, match=message):
        tokenizers.load(str(tokenizer_folders.write(files, tmp_path)))
