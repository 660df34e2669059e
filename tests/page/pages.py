"""Pages of small models, and their scripts run by node."""

import dataclasses
import json
import pathlib
import shutil
import subprocess

import jax
import numpy as np
import pytest
from flax import linen as nn

from bert_jax import tokenizers
from bert_jax.loaded import loaded_model
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.models import architectures
from bert_jax.page import bundle, contents

needs_node = pytest.mark.skipif(shutil.which('node') is None, reason='node is not installed')
_RUNNER = pathlib.Path(__file__).with_name('run_page.js')
_SIZES = {
    'hidden_size': 16,
    'num_layers': 2,
    'num_heads': 2,
    'intermediate_size': 24,
    'max_position_embeddings': 64,
}
LINES = [
    'The cats sat on the mats; the dog sits and the dogs sat.',
    "Don't they say: we're 3.14 € poorer, aren't we?",
    'Naïve cafés, Übermut, İstanbul, ΣΊΣΥΦΟΣ, ﬁn de siècle.',
    'Москва и Київ. Ἀθῆναι. Երկիրն անձեւ. ગુજરાતી લખાણ. ᏣᎳᎩ.',
    '北京 and 東京: 今日は。 한국어 텍스트 สวัสดีครับ',
    'emoji 👩‍👩‍👧 🏳️‍🌈!!  two  spaces\tand\ttabs\u00a0\u3000.\u0085',
    'soft\u00adhyphen, zero\u200bwidth, nul\u0000, mark\ufeff, control\u0007.',
    'a n\u0302 e\u0301 \u1100\u1161\u11a8 [MASK] <mask> [SEP] </s>',
    'x' * 250,
    ' ',
    '',
]
TEXT = 'The cats sat on the mats; naïve dogs'


def tokenizer(kind, lowercase=True):
    """A tokenizer trained on the test lines."""
    sizes = {'wordpiece': 'wordpiece:400', 'bytebpe': 'bytebpe:320', 'xlnet': 'xlnet:320'}
    return tokenizers.train(sizes[kind], LINES * 3, lowercase)


def random_model(family, tokenizer, heads=('mlm',), tuning=None, **changes):
    """A model with random parameters, of one of the published families."""
    sizes = _SIZES | {'vocab_size': tokenizer.vocab_size} | changes
    architecture = dataclasses.replace(architectures.build(family, **sizes), tuning=tuning)
    rng = np.random.default_rng(0)

    def draw(path, leaf):
        mean = float(path[-1].key == 'scale')
        return rng.normal(mean, 0.3, leaf.shape).astype(np.float32)

    shapes = nn.unbox(loaded_model.abstract(architecture, tuple(heads)))
    return LoadedModel(family, architecture, jax.tree.map_with_path(draw, shapes), tokenizer)


def write(folder, model, **options):
    """The page of a model."""
    path = folder / 'page.html'
    bundle.write(contents.describe(model, 'test', **options), path, overwrite=True)
    return path


def run(path, *calls):
    """The results of calls (name, arguments …) of run_page.js, in one process."""
    listed = [{'name': name, 'arguments': arguments} for name, *arguments in calls]
    file = path.with_suffix('.calls.json')
    file.write_text(json.dumps(listed), encoding='utf-8')
    command = ['node', str(_RUNNER), str(path), str(file)]
    done = subprocess.run(command, capture_output=True, encoding='utf-8')
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
