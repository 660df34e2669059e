"""The interface of a format."""

import abc
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bert_jax.export_formats.computation import Computation
from bert_jax.interop.pretrained import Pretrained


class Export(NamedTuple):
    """What is exported.

    Attributes:
        model: the model, merged with what tuning added if that is possible.
        task: what it computes, a task of `Predictor`.
        computation: the function of the task.
        inputs: inputs of three samples by name, int32 [3, …].
        expected: outputs of the samples by name, NaN at padding.
        texts: what was tokenized, each a text or a list of two; empty for other inputs than texts.
        max_length: tokens to which texts are truncated.
        prompt: what precedes each text.
        options: those of the format that were given.
    """

    model: Pretrained
    task: str
    computation: Computation
    inputs: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]
    texts: Sequence[Any]
    max_length: int
    prompt: str
    options: Mapping[str, Any]


class Result(NamedTuple):
    """What a format has written.

    Attributes:
        signature: further keys of signature.json, such as 'tolerance'.
        lines: what users should know.
    """

    signature: Mapping[str, Any] = {}
    lines: tuple[str, ...] = ()


class Format(abc.ABC):
    """A format of exported models.

    Attributes:
        requires: import name → pip requirement of the packages that writing and checking need.
        runtime: pip requirements of those who run the folder, besides NumPy and tokenizers.
        options: the options of the command line that the format has.
        has_erf: whether its operations include erf.
        only_task: the task it is limited to; None: it has all tasks.
    """

    requires: ClassVar[Mapping[str, str]] = {}
    runtime: ClassVar[tuple[str, ...]] = ()
    options: ClassVar[tuple[str, ...]] = ()
    has_erf: ClassVar[bool] = True
    only_task: ClassVar[str | None] = None

    @abc.abstractmethod
    def write(self, export: Export, folder: pathlib.Path) -> Result:
        """Write the model into an empty folder, to be run by loaders/NAME.py there."""
