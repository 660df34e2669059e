"""Predictions with folders of XLNet, whose rows end with [CLS], equal those of transformers."""

import json

import numpy as np
import pytest
import torch
import transformers

import bert_jax
from bert_jax import tokenizers
from bert_jax.errors import UserError
from bert_jax.interop import huggingface, huggingface_config
from bert_jax.tasks import make_task
from configs import finetune
from tests.end_to_end import small
from tests.interop import published
from tests.parity.agreement import agree

PAIRS = [('The ship and the cow', 'near the field'), ('A star', 'The tower and the bridge .')]
TEXTS = ['The ship and the cow near the barn .', 'A star .']


@pytest.fixture(scope='module')
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp('text')
    small.write_text(path)
    lines = (path / 'text.txt').read_text().splitlines()
    return tokenizers.train('xlnet:110', lines, lowercase=False)


def folder(path, name, tokenizer):
    """A folder as others publish it; returns the model and the tokenizer of transformers."""
    model = published.model(name, vocab_size=tokenizer.vocab_size)
    model.save_pretrained(path)
    architecture = huggingface.load(path).architecture
    huggingface_config.write_tokenizer(tokenizer, architecture, path)
    return model, transformers.AutoTokenizer.from_pretrained(path)


def test_vectors_of_texts_and_words_equal_those_of_transformers(tokenizer, tmp_path):
    model, theirs = folder(tmp_path, 'XLNetModel', tokenizer)
    ours = bert_jax.load(tmp_path)
    vectors, words = ours.embed(TEXTS), ours.embed_words(TEXTS)
    cls, tokens = ours.embed(TEXTS, pooling='cls'), ours.embed(TEXTS, pooling='tokens')
    for number, text in enumerate(TEXTS):
        encoded = theirs(text, return_tensors='pt')
        assert encoded['token_type_ids'][0, -1] == 2
        with torch.no_grad():
            states = model(**encoded).last_hidden_state[0].numpy()
        agree(vectors[number], states.mean(0))
        agree(cls[number], states[-1])
        agree(tokens[number], states)
        of_word = np.array(encoded.word_ids()[:-2])
        for word in range(len(words[number])):
            agree(words[number][word], states[:-2][of_word == word].mean(0))


def test_the_first_position_does_not_stand_for_a_text(tokenizer, tmp_path):
    """Training and export would pool the first token, prediction [CLS]."""
    folder(tmp_path / 'xlnet', 'XLNetModel', tokenizer)
    config = finetune.get_config('sample_embedding').unlock()
    config.update(init_from=str(tmp_path / 'xlnet'), workdir=str(tmp_path / 'run'))
    config.problem.text_pooling = 'cls'
    with pytest.raises(UserError, match="but .CLS. is the last token of .* to 'lasttoken'"):
        make_task(config.lock())
    modules = [
        {'idx': 0, 'name': '0', 'path': '', 'type': 'sentence_transformers.models.Transformer'},
        {'idx': 1, 'name': '1', 'path': 'p', 'type': 'sentence_transformers.models.Pooling'},
    ]
    (tmp_path / 'xlnet/p').mkdir()
    pooling = {'word_embedding_dimension': 16, 'pooling_mode_cls_token': True}
    (tmp_path / 'xlnet/modules.json').write_text(json.dumps(modules))
    (tmp_path / 'xlnet/p/config.json').write_text(json.dumps(pooling))
    with pytest.raises(UserError, match=r"pools with 'cls', .* ends it with .CLS."):
        bert_jax.load(tmp_path / 'xlnet').embed(TEXTS)


def test_classes_equal_those_of_transformers(tokenizer, tmp_path):
    """Of pairs of different lengths, which transformers pads on the left."""
    model, theirs = folder(tmp_path, 'XLNetForSequenceClassification', tokenizer)
    with torch.no_grad():
        encoded = theirs(*zip(*PAIRS, strict=True), padding=True, return_tensors='pt')
        assert encoded['attention_mask'][:, -1].all()
        expected = model(**encoded).logits.softmax(-1).numpy()
    ours = bert_jax.load(tmp_path)
    for record, probabilities in zip(ours.classify(PAIRS), expected, strict=True):
        assert record['probability'] == pytest.approx(probabilities.max(), abs=1e-5)


def test_a_permutation_language_model_fills_no_masks(tokenizer, tmp_path):
    folder(tmp_path, 'XLNetLMHeadModel', tokenizer)
    ours = bert_jax.load(tmp_path)
    for task in (ours.fill_mask, ours.pseudo_likelihood):
        with pytest.raises(UserError, match='has no head for .*; it can answer embed'):
            task(['The <mask> .'])
