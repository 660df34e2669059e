"""CTranslate2: converts a folder of transformers; compared with transformers itself."""

import json
import tempfile

import ctranslate2
import numpy as np
import shared
import torch
import transformers
from ctranslate2.converters import TransformersConverter

path, signature, samples = shared.folder()
config = json.loads((path / 'config.json').read_text())
target = tempfile.mkdtemp()
TransformersConverter(str(path)).convert(target, force=True)
ids, mask = samples['input_ids'], samples['attention_mask']
rows = [row[known > 0].tolist() for row, known in zip(ids, mask, strict=True)]
reference = getattr(transformers, config['architectures'][0]).from_pretrained(path).eval()


def log_p(logits):
    return torch.log_softmax(torch.as_tensor(logits), -1).numpy()


found, expected = [], []
if config['model_type'] == 'gpt2':
    generator = ctranslate2.Generator(target)
    for row in rows:
        view = ctranslate2.StorageView.from_array(np.array([row], np.int32))
        length = ctranslate2.StorageView.from_array(np.array([len(row)], np.int32))
        found.append(np.asarray(generator.forward_batch(view, length)))
        with torch.inference_mode():
            expected.append(reference(torch.tensor([row])).logits.numpy())
elif config.get('is_encoder_decoder'):
    vocab = json.loads((path / 'tokenizer.json').read_text())['model']['vocab']
    names = [t[0] for t in vocab] if isinstance(vocab, list) else sorted(vocab, key=vocab.get)
    names += [f'<{number}>' for number in range(config['vocab_size'] - len(names))]
    translator, start = ctranslate2.Translator(target), config['decoder_start_token_id']
    for row in rows:
        texts = [[names[index] for index in row]]
        scored = translator.score_batch(texts, [texts[0][1:-1]])[0].log_probs
        with torch.inference_mode():
            decoded = torch.tensor([[start, *row[1:-1]]])
            logits = reference(torch.tensor([row]), decoder_input_ids=decoded).logits[0]
        found.append(np.array(scored))
        labels = [*row[1:-1], config['eos_token_id']]
        expected.append(log_p(logits)[np.arange(len(labels)), labels])
else:
    encoder = ctranslate2.Encoder(target)
    for row in rows:
        found.append(np.asarray(encoder.forward_batch([row]).last_hidden_state))
        with torch.inference_mode():
            expected.append(reference(torch.tensor([row])).last_hidden_state.numpy())
shared.answer_difference(found, expected)
