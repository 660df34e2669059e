"""Writes ONNX files with int8 or float16 weights, and measures how their answers differ.

Clients choose them by these names: transformers.js with dtype 'q8' and 'fp16'.
"""

import contextlib
import logging
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_jax.errors import look_up
from bert_jax.export_formats.base import Export
from bert_jax.labels import formats
from bert_jax.metrics import metrics

_BATCH = 8  # texts
_ANSWERS = ('logits', 'start_logits')  # outputs whose largest value is the answer


class Variant(NamedTuple):
    """A file with smaller weights.

    Attributes:
        file: its name, beside model.onnx.
        convert: writes it: (the float32 file, the new file).
    """

    file: str
    convert: Callable[[pathlib.Path, pathlib.Path], None]


def quantize(source: pathlib.Path, target: pathlib.Path) -> None:
    """Write int8 matrices with a scale for each column; activations are quantized at run time."""
    from onnxruntime import quantization

    with _without_advice():
        quantization.quantize_dynamic(
            source, target, per_channel=True, weight_type=quantization.QuantType.QInt8
        )


def halve(source: pathlib.Path, target: pathlib.Path) -> None:
    """Write float16 weights and activations; inputs and outputs keep their types."""
    import onnx
    from onnxruntime.transformers import float16

    model = float16.convert_float_to_float16(onnx.load(source), keep_io_types=True)
    onnx.save(model, target)


VARIANTS = {
    'int8': Variant('model_quantized.onnx', quantize),
    'float16': Variant('model_fp16.onnx', halve),
}


def write(names: Sequence[str], export: Export, folder: pathlib.Path) -> list[str]:
    """Write variants of model.onnx, and compare them with it.

    Args:
        names: keys of VARIANTS.
        export: the exported model.
        folder: has model.onnx.

    Returns:
        A line for each variant: its size, the largest difference, and how far answers agree.

    Raises:
        UserError: a name is not in VARIANTS.
    """
    variants = [look_up('variant', name, VARIANTS) for name in names]
    if not variants:
        return []
    source, lines = folder / 'model.onnx', []
    inputs = export.inputs_of(export.options.texts or sample_texts())
    expected = _run(source, inputs)
    for name, variant in zip(names, variants, strict=True):
        target = folder / variant.file
        variant.convert(source, target)
        share = target.stat().st_size / source.stat().st_size
        described = describe(expected, _run(target, inputs), inputs, export.computation.per_token)
        lines.append(f'onnx/{variant.file}: {name}, {share:.2f} of the bytes; {described}')
    return lines


def sample_texts() -> list[str]:
    """The sentences of two of the samples of labeled data."""
    paths = [formats.SAMPLES / name for name in ('similarity.tsv', 'sentiment.tsv')]
    rows = [line.split('\t') for p in paths for line in p.read_text('utf-8').splitlines()[1:]]
    return [cell for row in rows for cell in row if ' ' in cell]


def describe(
    expected: Mapping[str, np.ndarray],
    found: Mapping[str, np.ndarray],
    inputs: Mapping[str, np.ndarray],
    per_token: frozenset[str],
) -> str:
    """The largest difference of any output at a token, and the agreement of the answers.

    Args:
        expected: outputs of float32 by name, [texts, …].
        found: outputs of the variant.
        inputs: with 'attention_mask' [texts, tokens].
        per_token: outputs with an axis of tokens, [texts, tokens, …].
    """
    is_token_BT = inputs['attention_mask'] > 0
    values = {n: array[is_token_BT] if n in per_token else array for n, array in expected.items()}
    others = {n: array[is_token_BT] if n in per_token else array for n, array in found.items()}
    largest = {n: float(np.abs(values[n] - others[n]).max()) for n in values}
    name = max(largest, key=largest.__getitem__)
    line = f'largest difference {largest[name]:.2g} in {name}'
    number = len(is_token_BT)
    if 'sentence_embedding' in values:
        pairs = [_cosines(array['sentence_embedding']) for array in (values, others)]
        agreement = metrics.spearman(*pairs)
        return f'{line}; Spearman correlation of the cosines of {number} texts {agreement:.4f}'
    answer = next((name for name in _ANSWERS if name in values), None)
    if answer is None or values[answer].shape[-1] == 1:
        return line
    if answer == 'start_logits':  # the answer is a token, not a class
        values[answer], others[answer] = (
            np.where(is_token_BT, array[answer], -np.inf) for array in (expected, found)
        )
    same = np.mean(values[answer].argmax(-1) == others[answer].argmax(-1))
    what = 'tokens' if answer in per_token and answer != 'start_logits' else 'texts'
    return f'{line}; the same answer for {100 * same:.1f} % of the {what} of {number} texts'


def _cosines(vectors_BE: np.ndarray) -> np.ndarray:
    """Cosines of all pairs of vectors."""
    unit_BE = vectors_BE / np.linalg.norm(vectors_BE, axis=1, keepdims=True)
    cosines: np.ndarray = (unit_BE @ unit_BE.T)[np.triu_indices(len(unit_BE), 1)]
    return cosines


def _run(path: pathlib.Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of a file by name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # it warns of float16 constants that it does not fold
    session = onnxruntime.InferenceSession(str(path), options, ['CPUExecutionProvider'])
    names = [output.name for output in session.get_outputs()]
    number = len(next(iter(inputs.values())))
    feeds = (
        {name: array[first : first + _BATCH].astype(np.int64) for name, array in inputs.items()}
        for first in range(0, number, _BATCH)
    )
    parts = [session.run(names, feed) for feed in feeds]
    return {name: np.concatenate([p[place] for p in parts]) for place, name in enumerate(names)}


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Hide the quantizer's advice to run another program first, which changes nothing here."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
