"""Added tokens in texts have the ids of transformers, by cached and by plain encoding."""

import itertools

import pytest

from bert_jax import tokenizers
from tests.parity import tokenizer_folders
from tests.parity.odd_strings import ODD
from tests.parity.test_tokenizer_folders import without_protobuf  # noqa: F401, a fixture
from tests.parity.tokenizer_folders import LAYOUTS, SENTENCES

transformers = pytest.importorskip('transformers')

LAYOUT_NAMES = ('vocab.txt', 'vocab.txt, cased', 'vocab.json', 'vocab.json, prefix', 'xlm-roberta')
LAYOUT_NAMES += ('camembert', 'albert', 'mmBERT', 'HerBERT')
FLAGS = ('lstrip', 'rstrip', 'single_word', 'normalized', 'special')
NARROW = ['[E1]', '<USER>', '@USER', 'Neword', '北京', 'éa', '[unused1]', '##x', '▁Tok']
WIDE = ['New York', 'a\tb']


def make_folder(layout, path, tokens):
    """A folder with added tokens of every combination of flags, as `transformers` saves it."""
    (path / 'base').mkdir()
    folder = tokenizer_folders.write(LAYOUTS[layout](), path / 'base')
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for token, flags in tokens:
        tokenizer.add_tokens([transformers.AddedToken(token, **flags)], flags['special'])
    tokenizer.save_pretrained(path / 'saved')
    return tokenizer, str(path / 'saved')


def all_flags(tokens):
    """Each token with its own combination of flags, so that most combinations occur."""
    combinations = [
        dict(zip(FLAGS, values, strict=True))
        for values in itertools.product([False, True], repeat=len(FLAGS))
    ]
    return [
        (f'{token}{number}', flags)
        for number, flags in enumerate(combinations)
        for token in (tokens[number % len(tokens)], tokens[(number // 3) % len(tokens)])
    ]


def make_lines(tokens):
    names = [token for token, _ in tokens]
    lines = []
    for first, second in zip(names, names[1:] + names[:1], strict=True):
        lines += [
            f'the {first} dog', f'{first}', f'x{first}y {second}', f'the  {first}  {second} .',
            f'{first}{second} {first.lower()} {first.upper()}', f'a. {first}, "{second}"!',
            f' {first} ', f'é {first}\u2028{second}\tend',
        ]  # fmt: skip
    literals = '<s>a <mask> b</s><pad>, <unk> [MASK][SEP] ＜mask＞ <bos>'
    return [*lines, literals, *ODD.values(), *SENTENCES]


@pytest.mark.parametrize('tokens', [NARROW, NARROW + WIDE], ids=['words', 'with spaces'])
@pytest.mark.parametrize('layout', LAYOUT_NAMES)
def test_ids_of_added_tokens(layout, tokens, tmp_path):
    tokens = all_flags(tokens)
    theirs, folder = make_folder(layout, tmp_path, tokens)
    ours, lines = tokenizers.load(folder), make_lines(tokens)
    if layout == 'albert':  # it decomposes Korean, which is then read as sentencepiece does
        lines = [line for line in lines if '한' not in line]
    reopened = transformers.AutoTokenizer.from_pretrained(folder)
    expected = [theirs(line, add_special_tokens=False)['input_ids'] for line in lines]
    assert expected == [reopened(line, add_special_tokens=False)['input_ids'] for line in lines]
    for line, own, other in zip(
        lines, ours.encode_batch(lines, special=True).ids, expected, strict=True
    ):
        assert own.tolist() == other, line
    roles = {*ours.special_ids} - {ours.unk_id}
    added = {theirs.convert_tokens_to_ids(token) for token, _ in tokens}
    added &= {index for ids in expected for index in ids}
    assert len(added) > 0.9 * len({token for token, _ in tokens})
    for special in (False, True):
        encoded = ours.encode_batch(lines, special=special).ids
        for line, own in zip(lines, encoded, strict=True):
            assert ours.encode_ids([line], special)[0].tolist() == own.tolist(), (line, special)
        found = {index for own in encoded for index in own.tolist()}
        assert bool(found & roles) == special
        assert found >= added
