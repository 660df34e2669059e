"""A wrong value of a key of config.json or tokenizer_config.json is at most a one-line error."""

import itertools
import json
import random

import pytest

from bert_jax import tokenizers
from bert_jax.errors import UserError
from bert_jax.interop import families, huggingface
from bert_jax.interop.families import FAMILIES
from tests.interop import published
from tests.parity import tokenizer_folders

VALUES = [None, 'x', '', [], ['a'], [1, 2], {}, {'a': 1}, {'0': 'a'}, {'0': {'content': 'q'}}]
VALUES += [-1, 0, 1, 0.5, 1.5, True, False, 10**9]
TOKENIZER_KEYS = [
    'add_prefix_space',
    'added_tokens_decoder',
    'additional_special_tokens',
    'bos_token',
    'cls_token',
    'do_lower_case',
    'do_word_tokenize',
    'extra_special_tokens',
    'keep_accents',
    'mask_token',
    'model_max_length',
    'model_type',
    'pad_token',
    'split_by_punct',
    'strip_accents',
    'subword_tokenizer_type',
    'tokenize_chinese_chars',
    'tokenizer_class',
    'unk_token',
    'word_tokenizer_type',
]


def class_of(model_type):
    classes = FAMILIES[model_type].classes
    classifiers = [name for name in classes if name.endswith('ForSequenceClassification')]
    return [*classes, *classifiers][-1]  # families of decoders have no classifier


def changes(model_type):
    """All changes of a single key of a config."""
    family = FAMILIES[model_type]
    written = published.config(class_of(model_type)).to_dict()
    read = {**family.keys, **family.fixed, **family.read_by_complete, **family.token_keys}
    keys = sorted({*written, *read, 'auto_map', 'num_labels', 'quantization_config'})
    return written, list(itertools.product(keys, VALUES))


def accepts(function, *arguments) -> bool:
    """Whether a function accepts its arguments; else it must raise a UserError of one line."""
    message = ''
    try:
        function(*arguments)
    except UserError as error:
        message = str(error)
    assert '\n' not in message
    return not message


def read_config(config):
    family = families.of_config(config)
    family.read_config(config)
    family.ignored_keys(config)
    huggingface._read_labels(config)


@pytest.mark.parametrize('model_type', FAMILIES)
@pytest.mark.parametrize('share', [0.15, pytest.param(1.0, marks=pytest.mark.slow)])
def test_configs(model_type, share):
    written, every = changes(model_type)
    chosen = random.Random(0).sample(every, int(share * len(every)))
    accepted = [accepts(read_config, {**written, key: value}) for key, value in chosen]
    assert 0.1 < sum(accepted) / len(accepted) < 0.9


@pytest.mark.parametrize('model_type', FAMILIES)
@pytest.mark.parametrize('number', [3, pytest.param(60, marks=pytest.mark.slow)])
def test_folders(model_type, number, tmp_path):
    published.folder(tmp_path, class_of(model_type))
    written, every = changes(model_type)
    for key, value in random.Random(1).sample(every, number):
        (tmp_path / 'config.json').write_text(json.dumps({**written, key: value}))
        accepts(huggingface.load, tmp_path)


@pytest.mark.parametrize('layout', tokenizer_folders.LAYOUTS)
@pytest.mark.parametrize('number', [4, pytest.param(200, marks=pytest.mark.slow)])
def test_tokenizer_folders(layout, number, tmp_path):
    files = tokenizer_folders.LAYOUTS[layout]()
    names = ('config', 'tokenizer_config', 'special_tokens_map')
    every = list(itertools.product(names, TOKENIZER_KEYS, VALUES))
    for name, key, value in random.Random(2).sample(every, number):
        changed = {**files, name: {**files.get(name, {}), key: value}}
        tokenizer_folders.write({n: changed.get(n, {}) for n in names} | changed, tmp_path)
        accepts(tokenizers.load, str(tmp_path))
