"""Folders of peft, and of transformers 5, of models with a decoder: T5, mT5 and BART."""

import os

import numpy as np
import pytest

from bert_jax.errors import UserError
from bert_jax.interop import huggingface_export, loading
from tests.interop import published

os.environ.setdefault('USE_TF', '0')
torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')
peft = pytest.importorskip('peft')

CLASSES = {'t5': 'T5ForConditionalGeneration', 'bart': 'BartForConditionalGeneration'}
IDS = torch.tensor([[10, 20, 30, 40, 3]])


def logits_of(model):
    with torch.no_grad():
        return model.eval()(input_ids=IDS, decoder_input_ids=IDS).logits.numpy()


def tune(folder, family, **settings):
    """Write a base model and a folder of peft; return the tuned model."""
    base = published.folder(folder / 'base', CLASSES[family])
    model = getattr(transformers, CLASSES[family]).from_pretrained(base)
    torch.manual_seed(1)
    settings = {'r': 3, 'lora_alpha': 6, 'init_lora_weights': False} | settings
    tuned = peft.get_peft_model(model, peft.LoraConfig(**settings))
    tuned.save_pretrained(folder / 'tuned')
    return tuned


@pytest.mark.parametrize(
    ('family', 'targets', 'task'),
    [
        ('t5', ['q', 'v'], 'SEQ_2_SEQ_LM'),
        ('bart', ['q_proj', 'v_proj'], 'SEQ_2_SEQ_LM'),
        ('t5', ['q', 'v'], None),
    ],
)
def test_a_tuned_model_writes_as_in_peft(family, targets, task, tmp_path):
    tuned = tune(tmp_path, family, target_modules=targets, task_type=task)
    ours = loading.load_any(tmp_path / 'tuned')
    assert ours.heads == ('seq2seq',)
    if task:
        huggingface_export.save(ours, tmp_path / 'out')
        back = getattr(transformers, CLASSES[family]).from_pretrained(tmp_path / 'out')
        np.testing.assert_allclose(logits_of(back), logits_of(tuned), atol=2e-4)


@pytest.mark.parametrize(
    ('family', 'settings', 'module'),
    [
        ('t5', {'target_modules': ['q', 'shared']}, 'shared'),
        ('t5', {'target_modules': ['q', 'embed_tokens']}, 'coder.embed_tokens'),
        ('t5', {'target_modules': ['q'], 'modules_to_save': ['shared']}, 'shared'),
        ('bart', {'target_modules': ['q_proj', 'shared']}, 'model.shared'),
        ('bart', {'target_modules': ['q_proj', 'embed_positions']}, 'coder.embed_positions'),
    ],
)
def test_tuned_embeddings_that_others_copy_are_refused(family, settings, module, tmp_path):
    tune(tmp_path, family, **settings)
    with pytest.raises(UserError, match=f'{module} is tuned, which is not supported') as error:
        loading.load_any(tmp_path / 'tuned')
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('kind', ['T5', 'MT5'])
def test_a_decoder_that_transformers_5_ties_is_read_and_exported(kind, tmp_path, capsys):
    name, made = f'{kind}ForConditionalGeneration', {'feed_forward_proj': 'gated-gelu'}
    base = published.folder(tmp_path / 'base', name, **made, tie_word_embeddings=False)
    model = getattr(transformers, name).from_pretrained(base)
    model.lm_head.weight = model.shared.weight
    model.save_pretrained(tmp_path / 'tied')
    for file in base.glob('*token*'):
        (tmp_path / 'tied' / file.name).write_bytes(file.read_bytes())
    ours = loading.load_any(tmp_path / 'tied')
    assert 'lm_head.weight is a copy of shared.weight' in capsys.readouterr().err
    huggingface_export.save(ours, tmp_path / 'out')
    theirs = getattr(transformers, name).from_pretrained(tmp_path / 'tied')
    back = getattr(transformers, name).from_pretrained(tmp_path / 'out')
    np.testing.assert_allclose(logits_of(back), logits_of(theirs), atol=2e-4)
