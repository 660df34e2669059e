"""A tokenizer.json cannot ask for much time or memory; those of published kinds are read."""

import base64
import io
import json

import pytest
import sentencepiece
import tokenizers as library
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bert_jax import limits, tokenizers
from bert_jax.errors import UserError
from bert_jax.tokenizers import backend, charsmap, costs, patterns, sentence_piece

TEXT = ['The cat sat on the mat, 12345 times.', 'Ein naïves Café in Zürich', '北京 и Москва'] * 20
# Patterns in the styles of published tokenizers.
WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CASES = r"(?i:'s|'t)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
UPPER = r'[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{M}]*[\p{Ll}\p{M}]+|\p{N}{1,3}|\s*[\r\n]+|\s+(?!\S)|\s+'
NESTED_CLASS = ' ?[^(\\s|[.,!?…。，、।۔،])]+'
SYLLABLES = r'(?:\p{L}\p{M}*)+| ?\p{N}|\s+|.'


def settings(**parts: object) -> dict:
    trained = json.loads(tokenizers.train('wordpiece:60', ['the cat sat on the mat']).to_json())
    return trained | parts


def step(part: object) -> dict:
    """A step of the library as it is in tokenizer.json."""
    tokenizer = library.Tokenizer(models.WordLevel({'a': 0}, 'a'))
    name = next(name for name in costs.PARTS if type(part).__module__.endswith(f'{name}s'))
    setattr(tokenizer, name, part)
    return json.loads(tokenizer.to_str())[name]


def sequence(kind: str, inner: str, steps: list) -> dict:
    return settings(**{kind: {'type': 'Sequence', inner: list(map(step, steps))}})


def sentencepiece_settings(**options: object) -> dict:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=model,
        vocab_size=340,
        hard_vocab_limit=False,
        minloglevel=3,
        **options,
    )
    return sentence_piece.settings(sentence_piece.read(model.getvalue()))


def llama() -> dict:
    """As Llama 2: SentencePiece's BPE with a normalizer instead of a pre-tokenizer."""
    bpe = library.Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token='<unk>'))
    bpe.normalizer = normalizers.Sequence([normalizers.Prepend('▁'), normalizers.Replace(' ', '▁')])
    names = ['<unk>', '<s>', '</s>', *(f'<0x{byte:02X}>' for byte in range(256))]
    trainer = library.trainers.BpeTrainer(vocab_size=400, special_tokens=names)
    bpe.train_from_iterator(TEXT, trainer)
    bpe.decoder = decoders.Sequence(
        [
            decoders.Replace('▁', ' '),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(' ', 1, 0),
        ]
    )
    bpe.post_processor = processors.TemplateProcessing(
        single='<s> $A', pair='<s> $A <s> $B', special_tokens=[('<s>', 1)]
    )
    return json.loads(bpe.to_str())


def byte_bpe(pattern: str) -> dict:
    """As Llama 3 and ModernBERT: bytes, with a pattern and many added tokens."""
    bpe = library.Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(library.Regex(pattern), 'isolated'),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.normalizer = normalizers.NFC()
    bpe.decoder = decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    bpe.train_from_iterator(TEXT, trainer)
    bpe.add_tokens([' ' * number for number in range(2, 25)])
    bpe.add_special_tokens([f'[unused{number}]' for number in range(80)])
    return json.loads(bpe.to_str())


def albert() -> dict:
    """As ALBERT: quotes, decomposed and without accents, lowercased, then SentencePiece's rules."""
    found = sentencepiece_settings(model_type='unigram')
    first = [
        normalizers.Replace('``', '"'),
        normalizers.Replace("''", '"'),
        normalizers.NFKD(),
        normalizers.StripAccents(),
        normalizers.Lowercase(),
    ]
    rules = found['normalizer']['normalizers']
    spaces = step(normalizers.Replace(library.Regex(' {2,}'), ' '))
    return found | {
        'normalizer': {'type': 'Sequence', 'normalizers': [*map(step, first), *rules, spaces]}
    }


REAL = {
    'bert': lambda: json.loads(tokenizers.train('wordpiece:200', TEXT).to_json()),
    'roberta': lambda: json.loads(tokenizers.train('bytebpe:300', TEXT).to_json()),
    'xlm-roberta': lambda: sentencepiece_settings(model_type='unigram'),
    't5': lambda: sentencepiece_settings(model_type='unigram', byte_fallback=True),
    'sentencepiece-bpe': lambda: sentencepiece_settings(model_type='bpe'),
    'albert': albert,
    'llama': llama,
    'words': lambda: byte_bpe(WORDS),
    'cases': lambda: byte_bpe(CASES),
    'upper': lambda: byte_bpe(UPPER),
    'nested-class': lambda: byte_bpe(NESTED_CLASS),
    'syllables': lambda: byte_bpe(SYLLABLES),
}


@pytest.mark.parametrize('name', REAL)
def test_published_kinds_are_read(name):
    found = REAL[name]()
    costs.check(found)
    assert backend.read(found).encode(TEXT[0]).ids


HOSTILE = {
    'long replacement': (
        lambda: settings(normalizer=step(normalizers.Replace('a', 'x' * 1001))),
        'normalizer: a text can become 1001 times as long; the limit is 1,000',
    ),
    'replacements that multiply': (
        lambda: sequence('normalizer', 'normalizers', [normalizers.Replace('a', 'aa')] * 10),
        'normalizer: a text can become 1024 times as long',
    ),
    'a pattern that matches nothing': (
        lambda: settings(normalizer=step(normalizers.Replace(library.Regex('x*'), 'y' * 1000))),
        'normalizer: a text can become 1001 times as long',
    ),
    'long prefix': (
        lambda: settings(normalizer=step(normalizers.Prepend('x' * 1000))),
        'normalizer: a text can become 1001 times as long',
    ),
    'bytes of bytes': (
        lambda: sequence('pre_tokenizer', 'pretokenizers', [pre_tokenizers.ByteLevel()] * 5),
        'pre_tokenizer: a text can become 1024 times as long',
    ),
    'replacements between decompositions': (
        lambda: sequence(
            'normalizer',
            'normalizers',
            [normalizers.NFKD(), normalizers.Replace('a', 'b')] * 3,
        ),
        'normalizer: a text can become 5832 times as long',
    ),
    'decoder': (
        lambda: settings(decoder=step(decoders.Replace('a', 'x' * 1001))),
        'decoder: a text can become 1001 times as long',
    ),
    'steps': (
        lambda: sequence('normalizer', 'normalizers', [normalizers.NFC()] * limits.STEPS),
        'normalizer has more than 1,000 steps',
    ),
    'a step without a type': (
        lambda: settings(normalizer={'pattern': {'String': 'a'}, 'content': 'b'}),
        "normalizer: a step has no 'type'",
    ),
    'long pattern': (
        lambda: settings(
            pre_tokenizer=step(pre_tokenizers.Split('a', 'isolated'))
            | {'pattern': {'Regex': 'a' * 10_001}}
        ),
        'pre_tokenizer: a pattern has 10,001 characters; the limit is 10,000',
    ),
    'a pattern that cannot be tried': (
        lambda: settings(
            pre_tokenizer=step(pre_tokenizers.Split('a', 'isolated'))
            | {'pattern': {'Regex': '(?:a*b)+('}}
        ),
        r'pre_tokenizer: the pattern \(\?:a\*b\)\+\( cannot be searched',
    ),
    'long words': (
        lambda: settings(model=settings()['model'] | {'max_input_chars_per_word': 1001}),
        'max_input_chars_per_word is 1001, above the limit of 1,000',
    ),
    'long token': (
        lambda: settings(model=settings()['model'] | {'vocab': {'x' * 1001: 0}}),
        'a token has 1,001 characters; the limit is 1,000',
    ),
    'long added token': (
        lambda: settings(added_tokens=[{'content': 'x' * 1001, 'id': 0}]),
        'a token has 1,001 characters; the limit is 1,000',
    ),
    'many long pieces': (
        lambda: settings(
            model={'type': 'Unigram', 'vocab': [['x' * 1000, 0.0]] * 10_001, 'unk_id': 0}
        ),
        'the tokens have 10,001,026 characters; the limit is 10,000,000',
    ),
}


@pytest.mark.parametrize('name', HOSTILE)
def test_what_asks_for_too_much_is_refused(name, tmp_path):
    make, message = HOSTILE[name]
    (tmp_path / 'tokenizer.json').write_text(json.dumps(make()))
    with pytest.raises(UserError, match=message):
        tokenizers.load(str(tmp_path))


@pytest.mark.parametrize(
    ('pattern', 'least', 'is_repeated'),
    [
        ('', 0, False),
        ('abc', 3, False),
        ('a|bc', 1, False),
        ('a?b*c+', 1, False),
        ('a{3}', 3, False),
        ('a{2,}', 2, False),
        ('a{,3}', 0, False),
        ('x{}', 3, False),
        (r'\p{L}\x{41}\u0041\d', 4, False),
        ('[]a]b', 2, False),
        ('[^a[bc]]', 1, False),
        ('(?=a+)b', 1, False),
        ('(?<!a)b', 1, False),
        ('(?<name>a)(?i:b)(?i)c', 3, False),
        (r'\ba\z', 1, False),
        ('(abc){2}', 6, False),
        ('(a+)?', 0, False),
        ('(a+)*', 0, True),
        ('(a|b){2}', 2, True),
        ('(a?){2}', 0, True),
        ('a{1,2}{3}', 3, True),
        ('((a+)b)+', 2, True),
        ('(?=(a+)+)', 0, True),
        ('(?>a+)+', 1, False),
        ('(a++)+', 1, False),
        (r'(a)\1', 0, True),  # not understood
        (r'(?<x>a\g<x>?)', 0, True),
        ('(?~a)', 0, True),
        ('(a', 0, True),
        ('a)', 0, True),
        ('[a', 0, True),
        ('(' * 10_000, 0, True),
        (WORDS, 1, False),
        (CASES, 1, False),
        (UPPER, 1, False),
        (NESTED_CLASS, 1, False),
        (SYLLABLES, 1, True),
    ],
)
def test_shapes_of_patterns(pattern, least, is_repeated):
    found = patterns.shape(pattern)
    assert (found.least, found.is_repeated) == (least, is_repeated)


def test_errors_of_the_library_are_one_line():
    tokenizer = tokenizers.Tokenizer(json.dumps(settings()))
    with pytest.raises(UserError, match='the tokenizers library cannot decode these ids'):
        tokenizer.decode([-1])


def test_panics_are_errors_of_the_user():
    class PanicException(BaseException):
        pass

    with (
        pytest.raises(UserError, match='cannot encode this text: a b$'),
        backend.library_errors('encode this text'),
    ):
        raise PanicException('a\nb')
    with pytest.raises(KeyboardInterrupt), backend.library_errors():
        raise KeyboardInterrupt


def test_damaged_rules_are_refused():
    rules = charsmap_of(sentencepiece_settings(model_type='unigram'))
    charsmap.Rules(rules)
    size = int.from_bytes(rules[:4], 'little')
    for damaged in (
        b'',
        rules[:3],
        rules[:-1],  # the last text has no end
        rules[: 4 + size],  # no texts
        (size + 1).to_bytes(4, 'little') + rules[4:],
        (2**31).to_bytes(4, 'little') + rules[4:],
        rules[:4] + b'\xff\xfd\xff\x7f' + rules[8:],  # children beyond the trie
        rules[:-2] + b'\xff\0',  # not UTF-8
    ):
        with pytest.raises(UserError, match='rules are damaged'):
            charsmap.Rules(damaged)


@pytest.mark.parametrize(
    ('rules', 'message'),
    [
        ('', 'rules are damaged'),
        ('AAAA', 'rules are damaged'),
        ('*', 'is not base64'),
        (3, 'base64'),
    ],
)
def test_damaged_rules_do_not_reach_the_library(rules, message, capfd):
    step = {'type': 'Precompiled', 'precompiled_charsmap': rules}
    with pytest.raises(UserError, match=message):
        tokenizers.Tokenizer(json.dumps(settings(normalizer=step)))
    assert not capfd.readouterr().err  # where the library reports that it panics


def charsmap_of(settings: dict) -> bytes:
    steps = settings['normalizer']['normalizers']
    (rules,) = (one for one in steps if one['type'] == 'Precompiled')
    return base64.b64decode(rules['precompiled_charsmap'])
