"""What to do with a finished run: commands that run as they are printed."""

import shlex
from collections.abc import Collection, Iterable, Sequence

from bert_jax.loaded.record import RunRecord
from bert_jax.tasks.initialization import InitialModel
from bert_jax.tokenizers import Tokenizer
from bert_jax.types import Tree


def after_pretraining(
    workdir: str, tokenizer: Tokenizer, heads: Collection[str], languages: Collection[str]
) -> list[str]:
    """Return commands that query and fine-tune a pretrained model.

    Args:
        workdir: The folder of the run.
        tokenizer: Its tokenizer.
        heads: The heads of the model.
        languages: The languages of its text; only English has examples.
    """
    if not {'en', 'und'} & set(languages):
        return ['python -m bert_jax.predict --help']
    if 'mlm' in heads:
        text = f'The old {tokenizer.vocab[tokenizer.mask_id]} looked at her and smiled.'
        query = _query(workdir, 'fill_mask', text)
    elif {'clm', 'seq2seq'} & {*heads}:
        query = _query(workdir, 'generate', 'The old man', '--new_tokens=20')
    else:
        query = _embed(workdir)
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
    if task in ('embed', 'embed_late'):
        return [_embed(workdir, task)]
    if task == 'terms':
        return [_query(workdir, task, 'A sentence.')]
    if texts:
        return [_query(workdir, task, '\t'.join(' '.join(text.split()) for text in texts))]
    return [f'python -m bert_jax.predict --task={task} --help']  # describes the input


def export(workdir: str, start: InitialModel, record: RunRecord, parts: Iterable[str]) -> list[str]:
    """Return the command that exports a fine-tuned run; none if an export would not hold all of it.

    Args:
        workdir: the folder of the run.
        start: its initial model.
        record: that of its checkpoints.
        parts: the parts of its parameters, such as 'encoder'.
    """
    from bert_jax.interop import huggingface_export
    from bert_jax.loaded import loaded_model

    params, others = dict[str, Tree](), dict[str, Tree]()
    for name in parts:
        (params if loaded_model.is_part(name) else others)[name] = {}
    model = loaded_model.LoadedModel(
        start.family,
        start.architecture,
        params,
        other_parts=others,
        is_causal=record.is_causal,
        has_prefix=record.has_prefix,
    )
    if not huggingface_export.is_complete(model):
        return []
    command = f'python -m bert_jax.export {shlex.quote(f"--model={workdir}")}'
    output = shlex.quote(f'--output={workdir}_exported')
    return [f'{command} {output}{" --merge" if start.architecture.tuning else ""}']


def _embed(workdir: str, task: str = 'embed') -> str:
    return _query(workdir, task, 'A sentence.', output=f'{workdir}_vectors.npz')


def _query(workdir: str, task: str, text: str, more: str = '', output: str = '-') -> str:
    flags = [f'--model={workdir}', f'--task={task}', '--input=-', f'--output={output}']
    query = ' '.join(map(shlex.quote, flags)) + f' {more}' * bool(more)
    return f"printf '%s\\n' {shlex.quote(text)} | python -m bert_jax.predict {query}"
