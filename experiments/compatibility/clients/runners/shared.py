"""What the runners of Python share: the folder, its samples, and how they answer."""

import json
import pathlib
import sys

import numpy as np


def folder():
    """The exported folder, signature.json and the arrays of samples.npz."""
    path = pathlib.Path(sys.argv[1])
    signature = json.loads((path / 'signature.json').read_text())
    return path, signature, np.load(path / 'samples.npz')


def inputs(signature, samples, dtype=np.int64):
    """The sample inputs of the model by name."""
    return {name: samples[name].astype(dtype) for name in signature['inputs']}


def answer(outputs):
    """Print outputs by name, which may be lists of arrays of different lengths."""
    lists = {name: [np.asarray(row).tolist() for row in rows] for name, rows in outputs.items()}
    print(json.dumps(lists))


def pairs(signature):
    """The texts of the samples, each a list of one or two."""
    return [[text] if isinstance(text, str) else text for text in signature['texts']]


def answer_difference(found, expected):
    """Print the largest difference of lists of arrays, and the largest value."""
    pairs = zip(found, expected, strict=True)
    difference = max(float(np.abs(one - other).max()) for one, other in pairs)
    largest = max(float(np.abs(array).max()) for array in expected)
    print(json.dumps({'difference': difference, 'largest': largest}))
