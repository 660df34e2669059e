"""The page's tokenizers give the same ids as ours."""

import itertools
import json

import pytest
import tokenizers as library

from bert_jax import tokenizers
from bert_jax.errors import UserError
from bert_jax.page import tokenizers as page_tokenizers
from bert_jax.tokenizers import Tokenizer, byte_bpe, wordpiece
from tests.page import pages
from tests.page.pages import LINES, needs_node

NUMBER = 1000


def agree(tmp_path, tokenizer, lines):
    """The ids of every line, with literal special tokens."""
    model = pages.random_model('bert', tokenizer, hidden_size=4, num_layers=1)
    (found,) = pages.run(pages.write(tmp_path, model), ('ids', lines))
    expected = tokenizer.encode_batch(lines, special=True).ids
    for line, own, wanted in zip(lines, found, expected, strict=True):
        assert own == wanted.tolist(), line


@needs_node
@pytest.mark.parametrize('lowercase', [False, True])
@pytest.mark.parametrize('kind', ['wordpiece', 'bytebpe'])
def test_ids_of_trained_tokenizers(kind, lowercase, tmp_path):
    agree(tmp_path, pages.tokenizer(kind, lowercase), LINES)


@needs_node
@pytest.mark.parametrize('kind', ['wordpiece', 'bytebpe'])
def test_ids_of_added_tokens(kind, tmp_path):
    """With every combination of options; expected: the ids of the tokenizers library."""
    backend = library.Tokenizer.from_str(pages.tokenizer(kind).to_json())
    options = ('lstrip', 'rstrip', 'single_word', 'normalized')
    lines = []
    for number, values in enumerate(itertools.product([False, True], repeat=4)):
        name = ('[E{}]', 'Añ{}', 'New York{}', '北{}')[number % 4].format(number)
        token = library.AddedToken(name, **dict(zip(options, values, strict=True)))
        backend.add_special_tokens([token]) if number % 3 else backend.add_tokens([token])
        lines += [f'the {name} cat', f'x{name}y', f'{name}, {name.lower()}!', f'sat  {name} \t dog']
        lines += [f'_{name} {name}{name}\u0301', f'{name}']
    found = {index for line in lines for index in backend.encode(line).ids}
    assert len(found - {*range(len(pages.tokenizer(kind).vocab))}) == 16
    agree(tmp_path, Tokenizer(backend.to_str()), lines)


@needs_node
@pytest.mark.parametrize(('kind', 'number'), [('wordpiece', len(LINES)), ('bytebpe', 5)])
def test_offsets_are_those_of_python(kind, number, tmp_path):
    """Except the white space of byte BPE, and in UTF-16 units, which lines of emoji differ by."""
    lines = [line for line in LINES[:number] if max(line, default='') < '\uffff']
    tokenizer = pages.tokenizer(kind)
    path = pages.write(tmp_path, pages.random_model('bert', tokenizer))
    (found,) = pages.run(path, ('tokens', lines))
    expected = tokenizer.encode_batch(lines, special=True).offsets
    for line, own, wanted in zip(lines, found, expected, strict=True):
        assert [[one['start'], one['end']] for one in own] == wanted.tolist(), line


@needs_node
@pytest.mark.parametrize(('spec', 'mask'), [('wordpiece:60', '[MASK]'), ('bytebpe:300', '<mask>')])
def test_tokens_read_as_text(spec, mask, tmp_path):
    """Bytes as characters; the space before <mask>, which it absorbs, is not part of its place."""
    tokenizer = tokenizers.train(spec, ['un café, deux cafés, sans élan '] * 9, lowercase=False)
    text = 'un élans, sans'
    (ids,) = tokenizer.encode_batch([text]).ids
    path = pages.write(tmp_path, pages.random_model('bert', tokenizer))
    calls = ('surfaces', ids.tolist()), ('tokens', [f'un  {mask} sans'])
    surfaces, (tokens,) = pages.run(path, *calls)
    joined = ''.join(('' if one['joins'] else ' ') + one['text'] for one in surfaces)
    assert joined.strip().replace(' ,', ',') == text
    (found,) = (one for one in tokens if one['id'] == tokenizer.mask_id)
    assert (found['start'], found['end']) == (4, 4 + len(mask))


def published(real_data, name):
    if name == 'byte BPE':
        folder = real_data / 'vocab_gpt2_bpe'
        files = folder / 'gpt2-vocab.json', folder / 'gpt2-merges.txt'
        return Tokenizer(json.dumps(byte_bpe.settings(*byte_bpe.read(*files))))
    text = (real_data / 'vocab_bert_base_uncased/vocab.txt').read_text(encoding='utf-8')
    settings = wordpiece.settings(wordpiece.read_vocab(text), name == 'uncased')
    return Tokenizer(json.dumps(settings))


@needs_node
@pytest.mark.parametrize('name', ['uncased', 'cased', 'byte BPE'])
def test_ids_of_published_tokenizers_on_lines_of_many_languages(name, real_data, tmp_path):
    files = sorted((real_data / 'bible_small_langs').glob('*.txt'))
    files += [real_data / 'wikitext2_valid/valid.txt']
    share = -(-NUMBER // len(files))
    lines = []
    for file in files:
        own = [line for line in file.read_text(encoding='utf-8').splitlines() if line.strip()]
        lines += own[: share + 10]
    assert len(lines) >= NUMBER
    agree(tmp_path, published(real_data, name), lines)


def test_other_tokenizers_are_refused():
    unigram = tokenizers.train('unigram:120', LINES[:2] * 9)
    with pytest.raises(UserError, match='of kind unigram; known: wordpiece, bytebpe'):
        page_tokenizers.describe(unigram)
    settings = json.loads(pages.tokenizer('wordpiece').to_json())
    settings['normalizer'] = {'type': 'NFKC'}
    with pytest.raises(UserError, match='unknown normalizer NFKC'):
        page_tokenizers.describe(Tokenizer(json.dumps(settings)))
    settings = json.loads(pages.tokenizer('bytebpe').to_json())
    settings['model']['end_of_word_suffix'] = '</w>'
    with pytest.raises(UserError, match='its BPE has end_of_word_suffix'):
        page_tokenizers.describe(Tokenizer(json.dumps(settings)))
