"""keras-hub: reads a folder of transformers as a preset; compared with transformers itself."""

import json
import os

os.environ.setdefault('KERAS_BACKEND', 'jax')
import keras_hub
import numpy as np
import shared
import torch
import transformers

CLASSES = {'bert': 'BertBackbone', 'roberta': 'RobertaBackbone', 'gpt2': 'GPT2Backbone'}
CLASSES |= {'bart': 'BartBackbone', 't5': 'T5Backbone'}
path, signature, samples = shared.folder()
model_type = json.loads((path / 'config.json').read_text())['model_type']
model = getattr(keras_hub.models, CLASSES[model_type]).from_preset(str(path))
reference = transformers.AutoModel.from_pretrained(path).eval()
ids, mask = samples['input_ids'], samples['attention_mask']
given = {'token_ids': ids, 'padding_mask': mask}
tensors = {'input_ids': torch.tensor(ids), 'attention_mask': torch.tensor(mask)}
if model_type == 'bert':
    given['segment_ids'] = samples['token_type_ids']
    tensors['token_type_ids'] = torch.tensor(samples['token_type_ids'])
if model_type in ('bart', 't5'):
    given = {f'{part}_{k}': v for part in ('encoder', 'decoder') for k, v in given.items()}
    tensors |= {f'decoder_{name}': tensor for name, tensor in [*tensors.items()]}
outputs = model.predict(given, verbose=0)
if isinstance(outputs, dict):
    outputs = outputs.get('decoder_sequence_output', outputs.get('sequence_output'))
with torch.inference_mode():
    expected = reference(**tensors).last_hidden_state.numpy()
shared.answer_difference([np.asarray(outputs)[mask > 0]], [expected[mask > 0]])
