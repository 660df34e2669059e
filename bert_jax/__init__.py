"""Bidirectional Transformer encoders in JAX: pretraining, fine-tuning, inference.

In a notebook:

    import bert_jax

    run = bert_jax.pretrain(['A document.', 'Another one.'], 'tiny', workdir='runs/mine')
    model = bert_jax.load('runs/mine')
    model.fill_mask(['the cat sat on the [MASK] .'])
    model.embed(['a sentence', 'another sentence'])

docs/python.md has more. Importing the package is cheap: JAX is imported by the first call.
"""

import importlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if sys.path[:1] == [os.path.dirname(os.path.abspath(__file__))]:  # shadows other packages
    sys.exit('error: run python -m bert_jax.NAME instead of a file of the package')

if TYPE_CHECKING:
    from bert_jax.errors import UserError as UserError
    from bert_jax.inference.predictor import Predictor
    from bert_jax.prepare import prepare_texts as prepare
    from bert_jax.training_calls import finetune, pretrain

__all__ = ['UserError', '__version__', 'finetune', 'load', 'prepare', 'pretrain']
__version__ = '0.1.0'

_MODULES = {
    'UserError': 'bert_jax.errors',
    'finetune': 'bert_jax.training_calls',
    'pretrain': 'bert_jax.training_calls',
}


def __getattr__(name: str) -> Any:  # imports the other functions when they are used
    if name == 'prepare':  # the module of the command, which can be called
        return importlib.import_module('bert_jax.prepare')
    if name not in _MODULES:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    return getattr(importlib.import_module(_MODULES[name]), name)


def load(
    path: str | os.PathLike[str],
    *,
    dtype: str = 'float32',
    max_length: int | None = None,
    leave_out: str = '',
    overlap: float = 0.25,
    batch_tokens: int = 1024,
    advance: Callable[[int], object] | None = None,
) -> 'Predictor':
    """Load a trained model with methods that take lists of strings.

    Args:
        path: folder of a run (for a sweep, of one of its runs), a checkpoint of a run, a Hugging
            Face folder, or a folder with the bert_model.ckpt of google-research/bert or the
            model.pt of fairseq.
        dtype: 'float32' or 'bfloat16', for computation.
        max_length: tokens in a window of a long text, special tokens included; default: the model's
            maximum. Fine-tuned models use the length they were trained with.
        leave_out: regular expression for the names of weights of a Hugging Face folder to leave
            out, such as those of heads that bert_jax does not have.
        overlap: share of a window that the next window repeats.
        batch_tokens: tokens in a batch, padding included.
        advance: called with the number of windows just finished, such as `tqdm.update`.

    Returns:
        A `Predictor`; its `tasks` lists the methods that this model has the heads for.

    Raises:
        UserError: the path does not hold a model, or the model is damaged or not supported.
    """
    from bert_jax.inference.predictor import Predictor
    from bert_jax.interop import loading

    model = loading.load_any(
        os.fspath(path), allow_missing=('^encoder/pooler/',), leave_out=leave_out
    )
    return Predictor(
        model,
        name=os.fspath(path),
        dtype=dtype,
        max_length=max_length,
        overlap=overlap,
        batch_tokens=batch_tokens,
        advance=advance,
    )
