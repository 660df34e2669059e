"""Runs the folder with sentence-transformers, as SentenceTransformer(FOLDER).encode(texts) does."""

import sentence_transformers
import torch


def load(folder, signature):
    """Return a function from inputs to outputs, by name."""
    model = sentence_transformers.SentenceTransformer(str(folder), device='cpu')

    def compute(inputs):
        with torch.inference_mode():
            outputs = model({k: torch.tensor(array).long() for k, array in inputs.items()})
        names = {'last_hidden_state': 'token_embeddings'}
        return {k: outputs[names.get(k, k)].numpy() for k in signature['outputs']}

    return compute
