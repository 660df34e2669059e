"""Tokenizer folders laid out as on the Hugging Face Hub, with small vocabularies."""

import functools
import io
import json
import pathlib

import sentencepiece
import tokenizers as library

from bert_jax import tokenizers

BERT = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
ROBERTA = ['<s>', '<pad>', '</s>', '<unk>', '<mask>']
SIZE = 2000

SENTENCES = (
    """\
The quick brown Fox jumps over the lazy dog, doesn't it? Yes: 42% of U.S. foxes do (e.g. in N.Y.)!
Wikipedia ’s editors – “quoted” — wrote http://example.org/a_b?c=d#e and me@example.com on 3/4/21.
L'été dernier, Zoë a mangé une crème brûlée à l'hôtel ; ça coûtait 12,50 € (naïveté oblige).
Zażółć gęślą jaźń: Łódź, Kraków, Gdańsk i Wrocław są piękne, prawda?
Mùa xuân là Tết trồng cây, làm cho đất nước càng ngày càng xuân.
Größere Straßen führen nach Österreich; ÄÖÜ äöü ß – „schön“.
Съешь же ещё этих мягких французских булок, да выпей чаю. Йод, ёлка.
Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία. Ελληνικά: Ά έ ή ί ό ύ ώ
İstanbul'da ığdır şçöğü: IŞIK ışık.
日本語の文章です。東京タワーは、333メートル（１９５８年）の高さだ！カタカナ・ひらがな 漢字
ﾊﾝｶｸｶﾅ と ｆｕｌｌｗｉｄｔｈ ＡＢＣ１２３ ㈱ ㍻ ① Ⅷ ½ ﬁ ﬂ
我们喜欢学习自然语言处理，因为它很有趣。繁體中文：臺灣、香港。
한국어 문장입니다. 서울은 대한민국의 수도이다! 조합형: 한글
مرحبا بالعالم، كيف حالك؟ الْعَرَبِيَّةُ
שלום עולם, מה שלומך? שָׁלוֹם
नमस्ते दुनिया, आप कैसे हैं? हिन्दी में लिखा है।
สวัสดีชาวโลก ภาษาไทยไม่มีช่องว่าง
Emoji 😀👍🏽👩‍👩‍👧 and symbols ™ © ° ± × ÷ → ∞ ≈ ´ ¨ ¯
  leading and  double   spaces\tand tabs \u00a0 fixed \u3000 ideographic \u200b zero\u200dwidth
cafe\u0301 decomposed, caf\u00e9 composed; A\u030angstro\u0308m
added <ent>Paris</ent> tokens [E1] x[E1]y and <ENT> neword Newords
``quoted'' text, 'single' and ''double''
a_b-c/d\\e|f+g=h~i`j^k<l>m{n}o[p]q
Antidisestablishmentarianism pneumonoultramicroscopicsilicovolcanoconiosis donaudampfschifffahrt
""".splitlines()
    + ['', ' ', 'x' * 130, 'ab ' * 20]
)


@functools.cache
def words() -> dict[str, int]:
    """A cased WordPiece vocabulary."""
    trained = tokenizers.train(f'wordpiece:{SIZE}', [training_text()], lowercase=False)
    return {token: index for index, token in enumerate(trained.vocab)}


def training_text() -> str:
    """Sentences in many scripts, as they are and in lower case."""
    return '\n\n'.join([*SENTENCES, *(line.lower() for line in SENTENCES)] * 4)


@functools.cache
def byte_pairs(*special: str) -> tuple[dict[str, int], tuple[tuple[str, str], ...]]:
    """A vocabulary and merges of bytes."""
    trained = library.ByteLevelBPETokenizer()
    trained.train_from_iterator(
        training_text().splitlines(), SIZE, special_tokens=list(special), show_progress=False
    )
    model = json.loads(trained.to_str())['model']
    return model['vocab'], tuple((left, right) for left, right in model['merges'])


@functools.cache
def herbert_pairs() -> tuple[dict[str, int], tuple[tuple[str, str], ...]]:
    """A vocabulary and merges of characters that mark the ends of words."""
    backend = library.Tokenizer(library.models.BPE(unk_token='<unk>', end_of_word_suffix='</w>'))
    backend.pre_tokenizer = library.pre_tokenizers.BertPreTokenizer()
    trainer = library.trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=['<s>', '<pad>', '</s>', '<unk>', '<mask>'],
        end_of_word_suffix='</w>',
        show_progress=False,
    )
    backend.train_from_iterator(training_text().splitlines(), trainer)
    model = json.loads(backend.to_str())['model']
    return model['vocab'], tuple((left, right) for left, right in model['merges'])


@functools.cache
def pieces(lowercase: bool = False, **options) -> bytes:
    """A SentencePiece model."""
    text, model = training_text(), io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((text.lower() if lowercase else text).splitlines()),
        model_writer=model,
        vocab_size=SIZE,
        hard_vocab_limit=False,
        minloglevel=3,
        **options,
    )
    return model.getvalue()


def scores(data: bytes | None = None) -> list[tuple[str, float]]:
    """The pieces of a model and their scores."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=data or pieces())
    number = range(processor.vocab_size())
    return [(processor.id_to_piece(i), processor.get_score(i)) for i in number]


ALBERT_PIECES = dict(
    pad_id=0, unk_id=1, bos_id=2, eos_id=3,
    bos_piece='[CLS]', eos_piece='[SEP]', user_defined_symbols=['[MASK]'],
)  # fmt: skip
DEBERTA_PIECES = dict(
    pad_id=0, bos_id=1, eos_id=2, unk_id=3,
    pad_piece='[PAD]', bos_piece='[CLS]', eos_piece='[SEP]', unk_piece='[UNK]',
)  # fmt: skip


def bert(**config):
    """A vocab.txt."""
    return {'vocab.txt': '\n'.join(words()), 'config': {'model_type': 'bert'}, **config}


def bert_json(lowercase: bool, **config):
    """A tokenizer.json of BERT."""
    settings = json.loads(tokenizers.Tokenizer(_wordpiece(lowercase)).to_json())
    settings['model']['max_input_chars_per_word'] = 100
    return {'tokenizer': settings, 'config': {'model_type': 'bert'}, **config}


def _wordpiece(lowercase: bool) -> str:
    return json.dumps(tokenizers.wordpiece.settings(words(), lowercase))


def early_json():
    """A tokenizer.json without the type of its model, as distilbert-base-uncased has it."""
    made = bert_json(True, config={'model_type': 'distilbert'})
    del made['tokenizer']['model']['type']
    return made


def byte_bpe(model_type, special, **config):
    """A vocab.json and merges.txt."""
    vocab, merges = byte_pairs(*special)
    return {
        'vocab': vocab,
        'merges.txt': _merges(merges),
        'config': {'model_type': model_type},
        **config,
    }


def _merges(merges) -> str:
    return '#version: 0.2\n' + ''.join(f'{left} {right}\n' for left, right in merges)


def byte_bpe_json(prefixed: bool, **config):
    """A tokenizer.json of RoBERTa."""
    vocab, merges = byte_pairs(*ROBERTA)
    settings = tokenizers.byte_bpe.settings(vocab, merges, add_prefix_space=prefixed)
    return {'tokenizer': settings, 'config': {'model_type': 'roberta'}, **config}


def herbert():
    """The files of HerBERT, a BertModel."""
    vocab, merges = herbert_pairs()
    config = {'model_type': 'bert', 'tokenizer_class': 'HerbertTokenizerFast'}
    return {'vocab': vocab, 'merges.txt': _merges(merges), 'config': config}


def mmbert():
    """A tokenizer.json with <bos> and <eos> whose vocabulary also has an <s> of HTML."""
    first = ['<pad>', '<eos>', '<bos>', '<unk>', '<mask>', '<s>', '</s>']
    text = [line.replace(' ', '▁') for line in training_text().splitlines()]
    backend = library.Tokenizer(library.models.BPE(unk_token='<unk>'))
    backend.pre_tokenizer = library.pre_tokenizers.Split('▁', 'merged_with_next')
    trainer = library.trainers.BpeTrainer(
        vocab_size=SIZE, special_tokens=first, show_progress=False
    )
    backend.train_from_iterator(text, trainer)
    backend.normalizer = library.normalizers.Replace(' ', '▁')
    backend.pre_tokenizer = library.pre_tokenizers.Split(' ', 'merged_with_previous')
    backend.post_processor = library.processors.TemplateProcessing(
        single='<bos> $A <eos>',
        pair='<bos> $A <eos> $B <eos>',
        special_tokens=[('<bos>', 2), ('<eos>', 1)],
    )
    names = {'bos': '<bos>', 'eos': '<eos>', 'cls': '<bos>', 'sep': '<eos>', 'pad': '<pad>'}
    names |= {'unk': '<unk>', 'mask': '<mask>'}
    return {
        'tokenizer': json.loads(backend.to_str()),
        'config': {'model_type': 'modernbert'},
        'tokenizer_config': {'tokenizer_class': 'GemmaTokenizerFast'},
        'special_tokens_map': {f'{role}_token': {'content': n} for role, n in names.items()},
    }


def renamed_specials():
    """A vocab.txt with other special tokens, which special_tokens_map.json names."""
    names = dict(zip(BERT, ('<pad>', '<unknown>', '<cls>', '<sep>', '<|MASK|>'), strict=True))
    roles = ('pad', 'unk', 'cls', 'sep', 'mask')
    return bert(
        special_tokens_map={f'{r}_token': n for r, n in zip(roles, names.values(), strict=True)}
    ) | {'vocab.txt': '\n'.join(names.get(token, token) for token in words())}


def mpnet(**config):
    """A vocab.txt of MPNet."""
    names = dict(zip(BERT, ('<pad>', '[UNK]', '<s>', '</s>', '<mask>'), strict=True))
    lines = '\n'.join(names.get(token, token) for token in words())
    return {'vocab.txt': lines, 'config': {'model_type': 'mpnet'}, **config}


def eurobert():
    """A tokenizer.json of bytes without an unknown token, padded with the token that ends texts."""
    names = ('<|begin_of_text|>', '<|end_of_text|>', '<|mask|>', '<|finetune_right_pad_id|>')
    vocab, merges = byte_pairs(*names)
    backend = library.Tokenizer(library.models.BPE(vocab, list(merges), ignore_merges=True))
    split = library.Regex(r' ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+')
    backend.pre_tokenizer = library.pre_tokenizers.Sequence(
        [
            library.pre_tokenizers.Split(split, 'isolated'),
            library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.add_special_tokens(list(names))
    begin, end = ((name, vocab[name]) for name in names[:2])
    backend.post_processor = library.processors.TemplateProcessing(
        single=f'{begin[0]} $A {end[0]}',
        pair=f'{begin[0]} $A {end[0]} $B {end[0]}',
        special_tokens=[begin, end],
    )
    roles = {'bos': names[0], 'eos': names[1], 'pad': names[1], 'mask': names[2]}
    options = {f'{role}_token': name for role, name in roles.items()}
    return {
        'tokenizer': json.loads(backend.to_str()),
        'config': {'model_type': 'eurobert'},
        'tokenizer_config': options | {'tokenizer_class': 'PreTrainedTokenizerFast'},
    }


def esm():
    """The vocab.txt of ESM-2."""
    letters = 'LAGVSERTIDPKQNFYMHWCXBUZO.-'
    tokens = ['<cls>', '<pad>', '<eos>', '<unk>', *letters, '<null_1>', '<mask>']
    return {'vocab.txt': '\n'.join(tokens), 'config': {'model_type': 'esm'}}


def repeated_lines():
    """A vocab.txt in which two lines are repeated."""
    lines = list(words())
    lines[100], lines[200] = lines[300], lines[150]
    return bert(tokenizer_config={'do_lower_case': False}) | {'vocab.txt': '\n'.join(lines)}


def sentencepiece_model(name, model_type, data, **config):
    """A SentencePiece model."""
    return {name: data, 'config': {'model_type': model_type}, **config}


def albert(**options):
    """A spiece.model of ALBERT."""
    data = pieces(lowercase=True, **ALBERT_PIECES | {'user_defined_symbols': ('[MASK]',)})
    return sentencepiece_model('spiece.model', 'albert', data, tokenizer_config=options)


def xlnet():
    """A spiece.model of XLNet, in which some punctuation marks are symbols of their own."""
    data = pieces(
        control_symbols='<cls>,<sep>,<pad>,<mask>,<eod>', user_defined_symbols='<eop>,.,(,),",-,–'
    )
    return sentencepiece_model('spiece.model', 'xlnet', data)


T5_PIECES = dict(pad_id=0, eos_id=1, unk_id=2, bos_id=-1)


def t5_json(data=None, **config):
    """A tokenizer.json of T5, as transformers 4 writes it."""
    model = tokenizers.sentence_piece.read(data or pieces(**T5_PIECES))
    names = [f'<extra_id_{number}>' for number in reversed(range(100))]
    settings = tokenizers.sentence_piece.settings(model, last=names, suffix=())
    return {'tokenizer': settings, 'config': {'model_type': 't5'}, **config}


def japanese(words_by, subwords_by, **options):
    """The vocab.txt of BertJapaneseTokenizer; its characters are tokens."""
    config = {'model_type': 'bert', 'tokenizer_class': 'BertJapaneseTokenizer'}
    types = {'word_tokenizer_type': words_by, 'subword_tokenizer_type': subwords_by}
    return bert(tokenizer_config=types | options) | {'config': config}


def added(first: int, *contents: str) -> dict[str, int]:
    """The contents of added_tokens.json."""
    return {content: first + number for number, content in enumerate(contents)}


def decoder(first: int) -> dict[str, dict]:
    """The added_tokens_decoder of a tokenizer_config.json."""
    return {
        str(index): {
            'content': content, 'lstrip': False, 'normalized': content == 'neword',
            'rstrip': False, 'single_word': content == 'neword', 'special': content == '[E1]',
        }
        for content, index in added(first, '<ent>', '</ent>', '[E1]', 'neword').items()
    }  # fmt: skip


CASED = {'do_lower_case': False}

# Name → the files of a folder: JSON by name without '.json', others as text or bytes.
LAYOUTS = {
    'vocab.txt': bert,
    'vocab.txt, cased': lambda: bert(tokenizer_config=CASED),
    'vocab.txt, accents and Chinese': lambda: bert(
        tokenizer_config={'strip_accents': False, 'tokenize_chinese_chars': False}
    ),
    'vocab.txt, added_tokens.json': lambda: bert(
        added_tokens=added(len(words()), '<ent>', '</ent>', '[E1]', 'neword'),
        tokenizer_config={'additional_special_tokens': ['<ent>', '</ent>']},
    ),
    'vocab.txt, added_tokens_decoder': lambda: bert(
        tokenizer_config=CASED | {'added_tokens_decoder': decoder(len(words()))}
    ),
    'vocab.txt, bos and eos': lambda: bert(
        tokenizer_config={'bos_token': '[BOS]', 'eos_token': '[EOS]'}
    ),
    'vocab.txt, renamed special tokens': renamed_specials,
    'vocab.txt, repeated lines': repeated_lines,
    'vocab.txt, roberta': lambda: bert(
        config={'model_type': 'roberta'}, tokenizer_config={'tokenizer_class': 'BertTokenizer'}
    ),
    'tokenizer.json, cased, no do_lower_case': lambda: bert_json(
        False, tokenizer_config={'tokenizer_class': 'BertTokenizer'}
    ),
    'tokenizer.json, uncased, cased config': lambda: bert_json(
        True, tokenizer_config=CASED | {'tokenizer_class': 'BertTokenizerFast'}
    ),
    'tokenizer.json, complete': lambda: bert_json(
        False, tokenizer_config={'tokenizer_class': 'PreTrainedTokenizerFast'}
    ),
    'tokenizer.json, early version': early_json,
    'mpnet': mpnet,
    'esm': esm,
    'eurobert': eurobert,
    'vocab.json': lambda: byte_bpe('roberta', ROBERTA),
    'vocab.json, added_tokens.json': lambda: byte_bpe(
        'roberta', ROBERTA, added_tokens=added(len(byte_pairs(*ROBERTA)[0]), '<ent>', '[E1]')
    ),
    'vocab.json, prefix': lambda: byte_bpe(
        'roberta', ROBERTA, tokenizer_config={'add_prefix_space': True}
    ),
    'vocab.json, deberta': lambda: byte_bpe(
        'deberta',
        ['[UNK]', '[CLS]', '[SEP]', '[PAD]'],
        tokenizer_config={'do_lower_case': False, 'vocab_type': 'gpt2'},
    ),
    'RoBERTa JSON, no prefix': lambda: byte_bpe_json(True),
    'RoBERTa JSON, prefix': lambda: byte_bpe_json(
        False,
        tokenizer_config={'add_prefix_space': True, 'tokenizer_class': 'RobertaTokenizer'},
    ),
    'HerBERT': herbert,
    'mmBERT': mmbert,
    'albert': albert,
    'albert, accents': lambda: albert(keep_accents=True),
    'albert, cased': lambda: albert(do_lower_case=False, keep_accents=True),
    'xlm-roberta': lambda: sentencepiece_model('sentencepiece.bpe.model', 'xlm-roberta', pieces()),
    'xlm-roberta, added_tokens.json': lambda: sentencepiece_model(
        'sentencepiece.bpe.model',
        'xlm-roberta',
        pieces(),
        added_tokens=added(len(scores()) + 2, '<ent>', '[E1]'),
    ),
    'camembert': lambda: sentencepiece_model('sentencepiece.bpe.model', 'camembert', pieces()),
    'xlnet': xlnet,
    'bart': lambda: byte_bpe('bart', ROBERTA),
    'mbart': lambda: sentencepiece_model('sentencepiece.bpe.model', 'mbart', pieces()),
    'mbart, Romanian': lambda: sentencepiece_model(
        'sentencepiece.bpe.model', 'mbart', pieces(), tokenizer_config={'src_lang': 'ro_RO'}
    ),
    't5': lambda: sentencepiece_model('spiece.model', 't5', pieces(**T5_PIECES)),
    't5, seven sentinels': lambda: sentencepiece_model(
        'spiece.model', 't5', pieces(**T5_PIECES), tokenizer_config={'extra_ids': 7}
    ),
    't5, tokenizer.json': t5_json,
    'mt5': lambda: sentencepiece_model(
        'spiece.model',
        'mt5',
        pieces(**T5_PIECES, user_defined_symbols=('▁<extra_id_1>', '▁<extra_id_0>')),
        tokenizer_config={'extra_ids': 0},
    ),
    'japanese, basic': lambda: japanese('basic', 'wordpiece'),
    'japanese, characters': lambda: japanese('basic', 'character'),
}


def write(files: dict, folder: pathlib.Path) -> pathlib.Path:
    """Write the files of a layout."""
    for file, content in files.items():
        if isinstance(content, bytes):
            (folder / file).write_bytes(content)
        elif isinstance(content, str):
            (folder / file).write_text(content, encoding='utf-8')
        else:
            (folder / f'{file}.json').write_text(json.dumps(content), encoding='utf-8')
    return folder
