"""What to do with a finished run: commands that run as they are printed."""

import shlex
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from bert_jax.tokenizers import Tokenizer

if TYPE_CHECKING:
    from bert_jax.models.tuning_method import Tuning


def after_pretraining(
    workdir: str, tokenizer: Tokenizer, fills_masks: bool, languages: Collection[str]
) -> list[str]:
    """Return commands that query and fine-tune a pretrained model.

    Args:
        workdir: The folder of the run.
        tokenizer: Its tokenizer.
        fills_masks: Whether it can fill masks.
        languages: The languages of its text; only English has examples.
    """
    if not {'en', 'und'} & set(languages):
        return ['python -m bert_jax.predict --help']
    if fills_masks:
        text = f'The old {tokenizer.vocab[tokenizer.mask_id]} looked at her and smiled.'
        query = _query(workdir, 'fill_mask', text)
    else:
        query = _query(workdir, 'embed', 'A sentence.', f'{workdir}_vectors.npz')
    tuned = shlex.quote(f'--config.workdir={workdir}_sentiment')
    tune = (
        'python -m bert_jax.main --config=configs/finetune.py:sample_sentiment '
        f'{shlex.quote(f"--config.init_from={workdir}")} {tuned}'
    )
    return [query, tune]


def after_fine_tuning(workdir: str, task: str, texts: Sequence[str]) -> list[str]:
    """Return a command that queries a fine-tuned model.

    Args:
        workdir: the folder of the run.
        task: the --task of bert_jax.predict.
        texts: the texts of an example that the model takes; empty if it takes other input.
    """
    if task == 'embed':
        return [_query(workdir, task, 'A sentence.', f'{workdir}_vectors.npz')]
    if task == 'terms':
        return [_query(workdir, task, 'A sentence.')]
    if texts:
        return [_query(workdir, task, '\t'.join(' '.join(text.split()) for text in texts))]
    return ['python -m bert_jax.predict --help']  # describes the input of every task


def export(workdir: str, tuning: 'Tuning | None') -> list[str]:
    """Return the command that exports a run; none if its tuning cannot be merged.

    Args:
        workdir: the folder of the run.
        tuning: the method of parameter-efficient tuning; None: the whole model was trained.
    """
    if tuning and not tuning.can_merge:
        return []
    model, output = shlex.quote(f'--model={workdir}'), shlex.quote(f'--output={workdir}_exported')
    return [f'python -m bert_jax.export {model} {output}{" --merge" if tuning else ""}']


def _query(workdir: str, task: str, text: str, output: str = '-') -> str:
    model, output = shlex.quote(f'--model={workdir}'), shlex.quote(f'--output={output}')
    return (
        f"printf '%s\\n' {shlex.quote(text)} | python -m bert_jax.predict {model} --task={task} "
        f'--input=- {output}'
    )
