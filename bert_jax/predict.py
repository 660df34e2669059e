"""Texts, one a line → what a model says of them.

    python -m bert_jax.predict --model=runs/tiny --task=fill_mask --input=texts.txt --output=-
    … --task=embed --pooling=mean --input=sentences.txt --output=vectors.npz
    … --task=pseudo_likelihood --input=sentences.txt --output=scores.jsonl
    python -m bert_jax.predict --model=runs/sst2 --task=classify --input=reviews.txt --output=-

--model is a run's folder, one of its checkpoints, or a folder of published weights; classify, tag,
spans and answer need a fine-tuned run. Their input is a text a line, two texts with a tab between
them, or a JSON object a line, such as {"question": "…", "context": "…"}.
"""

import argparse
import contextlib
import itertools
import json
import os
import pathlib
import sys
from collections.abc import Iterable, Iterator

import numpy as np

from bert_jax import errors, progress
from bert_jax.tasks.problems import PROBLEMS

LINES_AT_A_TIME = 4096  # sorted by length together
PRETRAINED = ('fill_mask', 'embed', 'pseudo_likelihood')
OPTIONS = {  # those of some tasks alone: their defaults, and the tasks
    'top': (5, ('fill_mask',)),
    'pooling': ('mean', ('embed',)),
    'layer': (-1, ('embed',)),
    'max_length': (None, PRETRAINED),
    'overlap': (0.25, PRETRAINED),
}


def fill_mask(predictor, texts: Iterable[str], file, top: int):
    """JSON lines {"text", "masks": one a [MASK], each [{"token", "probability"}, …]}."""
    without = 0
    for chunk in _chunks(texts):
        for text, masks in zip(chunk, predictor.fill_mask(chunk, top), strict=True):
            without += not masks
            guesses = [[guess._asdict() for guess in mask] for mask in masks]
            _write_line(file, {'text': text, 'masks': guesses})
    if without:
        print(f'{without:,} line(s) have no [MASK]', file=sys.stderr)


def pseudo_likelihood(predictor, texts: Iterable[str], file):
    """JSON lines {"text", "pseudo_log_likelihood": the sum, "tokens", "log_probabilities"}."""
    for chunk in _chunks(texts):
        for text, scored in zip(chunk, predictor.pseudo_likelihood(chunk), strict=True):
            values = [float(value) for value in scored.log_probabilities]
            record = {
                'text': text,
                'pseudo_log_likelihood': float(sum(values)),
                'tokens': scored.tokens,
                'log_probabilities': values,
            }
            _write_line(file, record)


def embed(predictor, texts: Iterable[str], file, pooling: str, layer: int | str):
    """.npz with `embeddings`, fp32 [texts, D]; with pooling 'tokens' [tokens of all texts, D] and
    `offsets` int64 [texts + 1], the first token of each text."""
    vectors = [v for chunk in _chunks(texts) for v in predictor.embed(chunk, pooling, layer)]
    if pooling == 'tokens':
        offsets = np.cumsum([0, *map(len, vectors)])
        np.savez(file, embeddings=np.concatenate(vectors), offsets=offsets)
    else:
        np.savez(file, embeddings=np.stack(vectors))


def fine_tuned(model, texts: Iterable[str], file, advance):
    """JSON lines, as the predictions a run leaves of its dev split."""
    for chunk in _chunks(enumerate(texts, 1)):
        examples = [
            model.problem.parse_input(f'line {number}', _given(number, line))
            for number, line in chunk
        ]
        for record in model(examples, advance):
            _write_line(file, {name: value for name, value in record.items() if name != 'gold'})


def _given(number: int, line: str) -> dict:
    """What a line of input says."""
    if not line.startswith('{'):
        return dict(zip(('text', 'text2'), line.split('\t', 1), strict=False))
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise errors.UserError(f'line {number} begins with {{ but is no JSON: {error}') from error


def read_lines(path: str) -> Iterator[str]:
    """The lines of a UTF-8 file, or of stdin for '-', without their ends. Raises UserError for a
    file that cannot be read and one without a line."""
    number = 0
    try:
        with contextlib.ExitStack() as stack:
            file = sys.stdin.buffer if path == '-' else stack.enter_context(open(path, 'rb'))
            for number, line in enumerate(file, 1):  # noqa: B007  (the last number is asked for)
                yield line.decode('utf-8').rstrip('\r\n')
    except UnicodeDecodeError as error:
        raise errors.UserError(f'{path}, line {number}: no UTF-8 text ({error})') from error
    except OSError as error:
        raise errors.UserError(f'{path}: {error.strerror}') from error
    if not number:
        raise errors.UserError(f'{path} has no line')


@contextlib.contextmanager
def _whole_file(path: str):
    """A file that gets its name when all is written; stdout for '-'."""
    if path == '-':
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    partial = pathlib.Path(f'{path}.partial')
    try:
        with open(partial, 'wb') as file:
            yield file
        os.replace(partial, path)
    except OSError as error:
        raise errors.UserError(f'{path} cannot be written: {error.strerror}') from error
    finally:
        partial.unlink(missing_ok=True)


def _chunks(texts: Iterable) -> Iterator[list]:
    texts = iter(texts)
    while chunk := list(itertools.islice(texts, LINES_AT_A_TIME)):
        yield chunk


def _write_line(file, record: dict):
    file.write((json.dumps(record, ensure_ascii=False) + '\n').encode())


def _flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='python -m bert_jax.predict', description='Texts → what a model says of them.'
    )
    add = parser.add_argument
    add('--model', required=True, help='folder of a run, checkpoint or published weights')
    add('--task', required=True, choices=[*PRETRAINED, *_fine_tuned_tasks()])
    add('--input', required=True, help='one text a line, UTF-8; - for stdin')
    add('--output', required=True, help='JSON lines (- for stdout), for embed .npz')
    add('--top', type=int, help='fill_mask: guesses for each [MASK]; 5')
    add('--pooling', help='embed: mean (by default), cls or tokens')
    add('--layer', help='embed: a number (-1) or {sum,mean,concat}_last_4')
    add('--max_length', type=int, help='tokens of a window; at most, and unless given, the model’s')
    add('--overlap', type=float, help='of neighboring windows of a long text; 0.25')
    add('--batch_tokens', type=int, default=1024, help='tokens of a batch, padding included')
    add('--dtype', default='float32', help='float32 or bfloat16')
    flags = parser.parse_args(arguments)
    _settle_options(flags)
    for name in ('top', 'batch_tokens'):
        if getattr(flags, name) < 1:
            raise errors.UserError(f'--{name} is {getattr(flags, name)}, must be at least 1')
    if flags.task == 'embed' and not flags.output.endswith('.npz'):
        raise errors.UserError(f'--output={flags.output}: embed writes a file that ends in .npz')
    return flags


def _fine_tuned_tasks() -> list[str]:
    """The tasks that query fine-tuned models."""
    return list(dict.fromkeys(kind.predict_task for kind in PROBLEMS.values()))


def _settle_options(flags: argparse.Namespace):
    """Puts in the defaults. Raises UserError for an option that the task does not have."""
    for name, (default, tasks) in OPTIONS.items():
        if getattr(flags, name) is None:
            setattr(flags, name, default)
        elif flags.task not in tasks:
            known = ', '.join(tasks)
            raise errors.UserError(f'--{name} is an option of {known}, not of --task={flags.task}')
    with contextlib.suppress(ValueError):
        flags.layer = int(flags.layer)


def predict(flags: argparse.Namespace):
    """Does what the command line says."""
    from bert_jax.training import runtime

    runtime.configure()
    import jax

    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)
    if flags.task in PRETRAINED:
        _ask_pretrained(flags)
    else:
        _ask_fine_tuned(flags)


def _ask_fine_tuned(flags: argparse.Namespace):
    from bert_jax.inference.finetuned import FineTuned

    model = FineTuned(flags.model, flags.dtype, flags.batch_tokens)
    fitting = PROBLEMS[model.task].predict_task
    if flags.task != fitting:
        raise errors.UserError(f'{flags.model} is a {model.task} run: use --task={fitting}')
    with progress.bar(unit='window') as bar, _whole_file(flags.output) as file:
        fine_tuned(model, read_lines(flags.input), file, bar.update)


def _ask_pretrained(flags: argparse.Namespace):
    from bert_jax.inference.predictor import Predictor
    from bert_jax.interop import loading

    model = loading.load_any(flags.model, allow_missing=('^encoder/pooler/',))
    with progress.bar(unit='window') as bar:
        predictor = Predictor(
            model,
            dtype=flags.dtype,
            max_length=flags.max_length,
            overlap=flags.overlap,
            batch_tokens=flags.batch_tokens,
            advance=bar.update,
        )
        with _whole_file(flags.output) as file:
            texts = read_lines(flags.input)
            if flags.task == 'fill_mask':
                fill_mask(predictor, texts, file, flags.top)
            elif flags.task == 'embed':
                embed(predictor, texts, file, flags.pooling, flags.layer)
            else:
                pseudo_likelihood(predictor, texts, file)


@errors.exit_cleanly
def main():
    predict(_flags())


if __name__ == '__main__':
    main()
