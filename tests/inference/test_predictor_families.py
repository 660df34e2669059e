"""Predictions with a published folder of every family equal those of transformers."""

import numpy as np
import pytest
import torch
import transformers

from bert_jax.inference.predictor import Predictor
from bert_jax.interop import huggingface
from tests.interop import published
from tests.parity.agreement import agree

TEXTS = ['the [MASK] near the storm .', 'the cow and the barn and the field near the [MASK]']


@pytest.mark.parametrize(
    ('name', 'changes'),
    [
        ('RobertaForMaskedLM', {'pad_token_id': 0, 'type_vocab_size': 1}),
        ('XLMRobertaForMaskedLM', {'pad_token_id': 0}),
        ('AlbertForPreTraining', {}),
        ('ElectraForMaskedLM', {}),
        ('DistilBertForMaskedLM', {}),
        ('ModernBertForMaskedLM', {}),
    ],
)
def test_guesses_and_vectors_equal_those_of_transformers(name, changes, tmp_path):
    folder = published.folder(tmp_path / 'in', name, **changes)
    model = getattr(transformers, name).from_pretrained(folder, attn_implementation='eager').eval()
    tokenizer = transformers.BertTokenizer(str(folder / 'vocab.txt'))
    predictor = Predictor(huggingface.load(folder), batch_tokens=400)
    vectors = predictor.embed(TEXTS)
    guesses_of_texts = predictor.fill_mask(TEXTS, top_k=3)
    vocab = published.vocabulary()
    for text, vector, masks in zip(TEXTS, vectors, guesses_of_texts, strict=True):
        ids = torch.tensor(tokenizer(text)['input_ids'])[None]
        with torch.no_grad():
            output = model(input_ids=ids, output_hidden_states=True)
        agree(vector, output.hidden_states[-1][0].mean(0).numpy())
        logits = output.get('prediction_logits', output.get('logits'))
        (position,) = np.flatnonzero(ids[0] == predictor.tokenizer.mask_id)
        probabilities = logits[0, position].softmax(-1).numpy()
        best = np.argsort(-probabilities)[:3]
        ((first, *others),) = masks
        assert [first.token, *(guess.token for guess in others)] == [vocab[i] for i in best]
        agree([first.probability, *(g.probability for g in others)], probabilities[best])
