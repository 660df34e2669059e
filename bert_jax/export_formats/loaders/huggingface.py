"""Runs the folder with transformers, as the class that config.json names."""

import json

import torch
import transformers


def load(folder, signature):
    """Return a function from inputs to outputs, by name."""
    (name,) = json.loads((folder / 'config.json').read_text(encoding='utf-8'))['architectures']
    model = getattr(transformers, name).from_pretrained(folder).eval()

    def compute(inputs):
        tensors = {key: torch.tensor(array).long() for key, array in inputs.items()}
        if name.endswith('ForMultipleChoice'):  # [texts, choices, tokens]
            tensors = {key: tensor[:, None] for key, tensor in tensors.items()}
        # The target is the text itself; for classes of texts or tokens, transformers makes it so.
        is_labeled = name.endswith(('ForSequenceClassification', 'ForQuestionAnswering'))
        if model.config.is_encoder_decoder and not is_labeled:
            tensors |= {f'decoder_{key}': tensor for key, tensor in tensors.items()}
        with torch.inference_mode():
            outputs = model(**tensors)
        return {name: outputs[name].numpy() for name in signature['outputs']}

    return compute
