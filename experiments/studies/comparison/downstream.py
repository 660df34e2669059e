"""The tasks that measure pretrained models: fine-tuning with and without the encoder, and BLiMP."""

import pathlib
import shutil

from experiments.finetuning import tasks
from experiments.finetuning.tasks import TaskSettings
from experiments.studies import runner
from experiments.studies.comparison.variants import LENGTH, Keys

TASKS = {  # name in the table → task of the comparison with torch
    'UPOS': tasks.TASKS['pos_ewt'],
    'NER': tasks.TASKS['wnut17'],
    'QA': tasks.TASKS['qamr'],
    'pairs': tasks.TASKS['med_nli'],
}
METRICS = {'UPOS': 'accuracy', 'NER': 'F1', 'QA': 'F1', 'pairs': 'accuracy'}
# Mode → what is trained, and the peak learning rate for these small encoders.
MODES: dict[str, Keys] = {
    'frozen': {'transfer.trainable': 'heads', 'schedule.learning_rate': 3e-3},
    'fine-tuned': {'transfer.trainable': 'all', 'schedule.learning_rate': 1e-3},
}
BLIMP = 'BLiMP'


def config_keys(
    task: TaskSettings,
    mode: str,
    head: Keys,
    data: str,
    weights: pathlib.Path,
    steps: int,
    *,
    is_causal: bool = False,
) -> dict[str, object]:
    """Return the keys of configs/finetune.py for a task.

    Args:
        task: the task.
        mode: a name in MODES.
        head: the keys of the variant's head.
        data: folder of the data sets.
        weights: folder of a pretraining run.
        steps: training steps.
        is_causal: whether the model was pretrained from left to right, as it then is fine-tuned:
            a text is classified by the state of its last token.
    """
    keys = tasks.config_keys(task, data, str(weights), steps)
    keys |= {'training.sequence_length': LENGTH, **MODES[mode], **head}
    if task.kind == 'classification':  # the mean: no encoder here was trained to pool
        keys['problem.pooling'] = 'last' if is_causal else 'mean'
    return keys


def measure(folder: pathlib.Path, task: TaskSettings, keys: dict[str, object]) -> float:
    """Train on a task unless the folder has the finished run; return its metric on dev."""
    command = runner.main_command(f'configs/finetune.py:{task.kind}', keys)
    runner.run_once(folder, command, '--config.workdir')
    shutil.rmtree(folder / 'checkpoints', ignore_errors=True)  # the metric is all that is needed
    return float(runner.read_results(folder)['held_out'][task.metric])


def blimp(folder: pathlib.Path, model: pathlib.Path, pairs: str, per_paradigm: int) -> float:
    """Return the mean accuracy over the paradigms of minimal pairs; scored once."""
    command = ['-m', 'bert_jax.analyze', 'pairs', f'--model={model}', f'--input={pairs}']
    runner.run_once(folder, [*command, f'--per_paradigm={per_paradigm}'], '--output')
    return float(runner.read_results(folder)['results']['mean_of_paradigms'])
