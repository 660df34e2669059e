"""The formats of other libraries: which folders and checkpoints are theirs, and what reads them."""

from collections.abc import Callable
from typing import NamedTuple

from bert_jax.storage.path import Path


class Reader(NamedTuple):
    """A format, recognized without importing what reads it.

    Attributes:
        load: 'module:function' that takes a folder on this machine, the heads and the parameters
            that may be missing (see `huggingface.load`), and what the traits below say.
        holds: whether a folder is of this format.
        is_checkpoint: whether a path is one of several checkpoints in a folder of this format, of
            which `load` takes the name as `checkpoint`.
        needs_base: whether folders hold only changes to another model, which `load` loads by its
            argument `load_base`.
        can_leave_out: whether `load` takes a regular expression `leave_out` of weights.
        is_like_run: whether the folder of a run can be taken for one of this format.
    """

    load: str
    holds: Callable[[Path], bool]
    is_checkpoint: Callable[[Path], bool] = lambda path: False
    needs_base: bool = False
    can_leave_out: bool = False
    is_like_run: bool = False


def _is_in_fairseq_folder(path: Path) -> bool:
    return path.suffix == '.pt' and path.is_file() and (path.parent / 'dict.txt').is_file()


# Name → reader; the first that holds a folder reads it.
READERS = {
    'peft': Reader(
        'bert_jax.interop.peft_folder:load',
        holds=lambda folder: (folder / 'adapter_config.json').is_file(),
        needs_base=True,
    ),
    'huggingface': Reader(
        'bert_jax.interop.huggingface:load',
        holds=lambda folder: any(
            (folder / name).is_file() for name in ('config.json', 'modules.json')
        ),
        can_leave_out=True,
        is_like_run=True,
    ),
    'tf1': Reader(
        'bert_jax.interop.tf1_folder:load',
        holds=lambda folder: (folder / 'bert_config.json').is_file(),
        is_checkpoint=lambda path: path.with_name(f'{path.name}.index').is_file(),
    ),
    'fairseq': Reader(
        'bert_jax.interop.fairseq_folder:load',
        holds=lambda folder: (folder / 'dict.txt').is_file() and any(folder.glob('*.pt')),
        is_checkpoint=_is_in_fairseq_folder,
    ),
}
