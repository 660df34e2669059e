"""From the state dict of transformers' BertForPreTraining to our parameter tree, for tests."""

import numpy as np


def to_tree(state: dict, architecture) -> dict:
    """{'encoder', 'mlm', 'nsp'}: parameter trees (layers not stacked) of NumPy arrays.

    state: names to NumPy arrays, weights or gradients alike (the map is linear); every entry must
    find its place, KeyError otherwise.
    """
    left = dict(state)
    decoder = left.pop('cls.predictions.decoder.weight', None)
    left.pop('cls.predictions.decoder.bias', None)  # the same tensor as cls.predictions.bias
    size, heads = architecture.hidden_size, architecture.num_heads
    padding = architecture.padded_vocab_size - architecture.vocab_size

    def dense(name, shape=None, bias_shape=None):
        kernel, bias = left.pop(f'{name}.weight').T, left.pop(f'{name}.bias')
        return {
            'kernel': kernel.reshape(shape or kernel.shape),
            'bias': bias.reshape(bias_shape or bias.shape),
        }

    def norm(name):
        return {'scale': left.pop(f'{name}.weight'), 'bias': left.pop(f'{name}.bias')}

    def layer(name):
        by_head = (size, heads, size // heads)
        attention = {
            part: dense(f'{name}.attention.self.{part}', by_head, by_head[1:])
            for part in ('query', 'key', 'value')
        }
        attention['output'] = dense(f'{name}.attention.output.dense', (*by_head[1:], size))
        return {
            'attention': attention,
            'attention_norm': norm(f'{name}.attention.output.LayerNorm'),
            'feedforward': {
                'input': dense(f'{name}.intermediate.dense'),
                'output': dense(f'{name}.output.dense'),
            },
            'feedforward_norm': norm(f'{name}.output.LayerNorm'),
        }

    token = left.pop('bert.embeddings.word_embeddings.weight')
    assert decoder is None or np.array_equal(decoder, token)
    encoder = {
        'embeddings': {
            'token': np.pad(token, ((0, padding), (0, 0))),
            'position': left.pop('bert.embeddings.position_embeddings.weight'),
            'type': left.pop('bert.embeddings.token_type_embeddings.weight'),
            'norm': norm('bert.embeddings.LayerNorm'),
        },
        'pooler': dense('bert.pooler.dense'),
    }
    for i in range(architecture.num_layers):
        encoder[f'layers_{i}'] = layer(f'bert.encoder.layer.{i}')
    mlm = {
        'transform': dense('cls.predictions.transform.dense'),
        'norm': norm('cls.predictions.transform.LayerNorm'),
        'bias': np.pad(left.pop('cls.predictions.bias'), (0, padding)),
    }
    nsp = {'dense': dense('cls.seq_relationship')}
    if left:
        raise KeyError(f'no place for {sorted(left)}')
    return {'encoder': encoder, 'mlm': mlm, 'nsp': nsp}
