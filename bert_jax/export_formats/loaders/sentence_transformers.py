"""Runs the folder with sentence-transformers, as SentenceTransformer(FOLDER).encode(texts) does."""

import sentence_transformers
import torch


def load(folder, signature):
    """Return a function from inputs to outputs, by name."""
    model = sentence_transformers.SentenceTransformer(str(folder), device='cpu')

    def compute(inputs):
        with torch.inference_mode():
            outputs = model({k: torch.tensor(array).long() for k, array in inputs.items()})
        names = {'embedding': 'sentence_embedding', 'states': 'token_embeddings'}
        return {name: outputs[theirs].numpy() for name, theirs in names.items()}

    return compute
