"""The interface of an export format."""

import abc
import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from bert_jax.export_formats.computation import Computation
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.types import JsonObject


@dataclasses.dataclass(frozen=True, kw_only=True)
class FormatOptions:
    """Options of single formats; the flags of bert_jax.export.

    Attributes:
        lengths: tflite: lengths to which texts are padded, besides the longest; (): the default.
        dtype: tflite: 'float32', or 'int8' for matrices.
        variants: onnx: further files, 'int8' or 'float16'.
        texts: onnx: texts for which variants are compared; (): sentences of bert_jax.
        shape: stablehlo: the fixed number of texts and of tokens; (): any.
    """

    lengths: tuple[int, ...] = ()
    dtype: str = 'float32'
    variants: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    shape: tuple[int, ...] = ()


NO_OPTIONS = FormatOptions()


class Export(NamedTuple):
    """A model with everything that a format needs to write it.

    Attributes:
        model: the model, with the parameters that tuning added merged if possible.
        task: a task of `Predictor`.
        computation: the function that computes the task.
        inputs: inputs of three samples by name, int32 [3, …].
        expected: outputs of the samples by name, NaN at padding.
        texts: texts of the samples, each a text or a list of two; empty if the inputs are not plain
            texts.
        max_length: texts are truncated to this many tokens.
        prompt: text put before each text.
        inputs_of: the inputs of any texts, as `inputs`.
        options: of the format.
    """

    model: LoadedModel
    task: str
    computation: Computation
    inputs: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]
    texts: Sequence[str | list[str]]
    max_length: int
    prompt: str
    inputs_of: Callable[[Sequence[str]], Mapping[str, np.ndarray]]
    options: FormatOptions = NO_OPTIONS


class Result(NamedTuple):
    """Details of a written model.

    Attributes:
        signature: further keys of signature.json, such as 'tolerance'.
        lines: notes for users.
    """

    signature: JsonObject = {}
    lines: tuple[str, ...] = ()


class Format(abc.ABC):
    """A format of exported models.

    Attributes:
        requires: import name → pip requirement of the packages that writing and checking need,
            besides TensorFlow.
        needs_tensorflow: whether writing and checking need TensorFlow.
        runtime: pip requirements of the loader, besides NumPy and tokenizers.
        has_erf: whether its operations include erf.
        input_dtype: of all inputs of a written model.
        only_task: the only task that it supports; None: all tasks.
    """

    requires: ClassVar[Mapping[str, str]] = {}
    needs_tensorflow: ClassVar[bool] = False
    runtime: ClassVar[tuple[str, ...]] = ()
    has_erf: ClassVar[bool] = True
    input_dtype: ClassVar[str] = 'int32'
    only_task: ClassVar[str | None] = None

    @abc.abstractmethod
    def write(self, export: Export, folder: pathlib.Path) -> Result:
        """Write the model into an empty folder; loaders/NAME.py will run it there."""
