"""Folders as other people publish them: written by transformers, with weights large enough to
show a missing one."""

import pathlib

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

from tests.end_to_end import small

SIZES = {
    'vocab_size': 131,
    'hidden_size': 20,
    'num_hidden_layers': 2,
    'num_attention_heads': 4,
    'intermediate_size': 28,
    'max_position_embeddings': 19,
}


def model(published: str = 'BertForPreTraining', seed: int = 0, **changes):
    """A model of transformers with random weights ten times the usual, and biases."""
    torch.manual_seed(seed)
    made = getattr(transformers, published)(transformers.BertConfig(**(SIZES | changes))).eval()
    with torch.no_grad():
        for name, value in made.named_parameters():
            value.normal_(1.0 if name.endswith('LayerNorm.weight') else 0.0, 0.2)
    return made


def folder(path: pathlib.Path, published: str = 'BertForPreTraining', **changes) -> pathlib.Path:
    """The folder of such a model with a vocabulary."""
    model(published, **changes).save_pretrained(path)
    (path / 'vocab.txt').write_text('\n'.join(vocabulary()) + '\n')
    return path


def vocabulary() -> list[str]:
    """131 tokens: the special ones, the words of small.TOPICS, letters and their continuations."""
    words = [word for topic in small.TOPICS.values() for word in topic]
    letters = 'abcdefghijklmnopqrstuvwxyz'
    tokens = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'the', 'and', 'near', '.', *words]
    tokens += [*letters, *(f'##{letter}' for letter in letters)]
    return tokens + [f'[unused{i}]' for i in range(SIZES['vocab_size'] - len(tokens))]


def batch(vocab_size: int = SIZES['vocab_size'], length: int = SIZES['max_position_embeddings']):
    """Token ids, a mask with padding, and two segments: int64 [3, length] each."""
    rng = np.random.default_rng(1)
    ids = rng.integers(0, vocab_size, (3, length))
    mask = (np.arange(length) < np.array([[length], [length - 5], [1]])).astype(np.int64)
    types = (np.arange(length) >= np.array([[length // 2], [3], [length]])).astype(np.int64)
    return ids, mask, types


def outputs(made) -> dict[str, np.ndarray]:
    """What a model of transformers computes of `batch`, in our names."""
    ids, mask, types = (torch.from_numpy(values) for values in batch(made.config.vocab_size))
    with torch.no_grad():
        output = made(
            input_ids=ids, attention_mask=mask, token_type_ids=types, output_hidden_states=True
        )
    computed = {'all_hidden': torch.stack(output.hidden_states).numpy()}
    names = {'prediction_logits': 'mlm_logits', 'seq_relationship_logits': 'nsp_logits'}
    for theirs, ours in names.items():
        if theirs in output:
            computed[ours] = output[theirs].numpy()
    if 'logits' in output:
        name = 'mlm_logits' if output.logits.ndim == 3 else 'nsp_logits'
        computed[name] = output.logits.numpy()
    return computed


def edit(path: pathlib.Path, change):
    """Rewrites the weights of a folder after change(weights)."""
    file = path / 'model.safetensors'
    weights = load_file(file)
    change(weights)
    save_file(weights, file, metadata={'format': 'pt'})
