"""bert_jax.json in exported folders: prediction settings that config.json cannot hold.

They include word splitting, the length of training sequences and tuned thresholds, without which an
exported model would predict differently from the run. transformers ignores the file.
"""

import dataclasses
import pathlib

from bert_jax import files
from bert_jax.loaded.loaded_model import LoadedModel
from bert_jax.loaded.record import Usage

FILE = 'bert_jax.json'
_PATH_KEYS = ('train', 'dev', 'test', 'data_dir', 'contexts')  # of config.data; not written


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportedUsage(Usage):
    """What an exported folder records.

    Attributes:
        heads: of the model, in a folder of peft, which has no config.json.
    """

    heads: tuple[str, ...] = ()


def write(model: LoadedModel, folder: pathlib.Path) -> None:
    """Write the file, unless nothing is known about the training."""
    if not model.details:
        return
    run, problem = model.usage, model.usage.section('problem')
    sections = {'objectives': run.section('objectives')}
    if problem:
        # Parts such as a CRF are not exported, so the settings that ask for them are dropped.
        kept = {name: value for name, value in problem.items() if name not in model.other_parts}
        # config.json has the labels of classifiers only.
        sections['problem'] = kept | {'labels': list(model.labels)}
        data = run.section('data').items()
        sections['data'] = {name: value for name, value in data if name not in _PATH_KEYS}
        sections['training'] = run.section('training')
    is_tuned = model.architecture.tuning is not None
    exported = ExportedUsage(
        # Without heads the exported model cannot answer.
        task=run.task if problem and model.heads else None,
        problem_type=model.problem_type if is_tuned else None,
        labels=model.labels if is_tuned else (),
        calibrated=run.calibrated,
        kept=run.kept,
        texts=run.texts,
        config=sections,
        heads=model.heads if is_tuned else (),
    )
    files.write_json(folder / FILE, exported.to_json())


def read(folder: pathlib.Path) -> ExportedUsage:
    """Return what the bert_jax.json of a folder records; without the file, an empty record.

    Raises:
        UserError: the file is not of this form.
    """
    return ExportedUsage.from_json(files.read_json(folder / FILE, default={}), folder / FILE)
