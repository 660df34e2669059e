"""Runs a trained model on texts: one text a line in, one JSON object a line out.

    python -m bert_jax.predict --model=runs/tiny --task=fill_mask --input=texts.txt --output=-
    … --task=embed --pooling=mean --input=sentences.txt --output=vectors.npz
    python -m bert_jax.predict --model=runs/sst2 --task=classify --input=reviews.txt --output=-

--help describes every task, its input and its output. The Python equivalent is `bert_jax.load`.
"""

import argparse
import contextlib
import json
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from bert_jax import errors, files, progress
from bert_jax.cli import prompt_flags
from bert_jax.flag_parser import FlagParser, positive
from bert_jax.inference import table_input, vector_file
from bert_jax.inference.line_tasks import PRETRAINED, Record, Task, predict_finetuned
from bert_jax.interop import MODEL_HELP
from bert_jax.labels import word_spans
from bert_jax.metrics.scored_rows import VARIANTS
from bert_jax.problems import PROBLEMS
from bert_jax.storage import outputs, paths
from bert_jax.text import text_files

_EPILOG = """\
tasks of pretrained models (input: one text a line):
  fill_mask          tokens for every [MASK] of a line. Needs a masked-language-model head.
                     {"text", "masks": [[{"token", "probability"}, ...], ...]}
  embed              vectors, as a NumPy .npz: `embeddings` [texts, D]; with --pooling=tokens
                     [tokens, D] and `offsets` [texts + 1], the first token of each text; with
                     --unit=word or span [words, D], `offsets` and `spans` [words, 2], the
                     characters of each. Words: a text or {"words": ["...", ...]} a line;
                     spans: {"text": "...", "spans": [[start, end], ...]}, in characters
  pseudo_likelihood  log probability of each token when it is masked, in nats; for a causal model,
                     log probability given the tokens to its left
                     {"text", "pseudo_log_likelihood", "tokens", "log_probabilities"}
  pairs              compare two sentences, TEXT<tab>TEXT; "preferred" is 0, 1 or null (a tie)
                     {"texts", "pseudo_log_likelihoods", "of_shared_tokens", "preferred"}

tasks of fine-tuned models (input: one example a line; output: lines as in dev/predictions.jsonl of
the run, without "gold"):
  classify   classification, regression   a text, or TEXT<tab>TEXT for a pair, or
                                          {"text": "...", "text2": "..."}
             multiple_choice              {"premise": "...", "choices": ["...", ...]}
             relation, word_in_context,   {"text": "...", "marks": [[start, end], [start, end]]},
             coreference                  in characters; with "text2" the second mark is in it
  tag        tagging                      a text, or {"words": ["...", ...]} (or "tokens")
  spans      spans                        a text, or {"words": ["...", ...]} (or "tokens")
  answer     question_answering           QUESTION<tab>CONTEXT, or
                                          {"question": "...", "context": "..."}
  prompt     prompt; with --template any  a text, or TEXT<tab>TEXT for {text} and {text2}, or
             pretrained model with a      {"FIELD": "...", ...} for the fields of the template
             masked-language-model head

A .csv, .tsv, .parquet or .json file is a table: its rows are the examples, and its columns have
the names of these fields or those of data.columns in training. For tasks of pretrained models, a
.jsonl file is a table too, and the texts are in the column text (pairs: text and text2).
A line that starts with { must be a JSON object, unless --input_format=text; its "id" is kept.
Line N gets the id "input N" if it has none.
Text for tag and spans is split into words like the training data; see --words.
Examples that are too long are counted at the end: see --long_texts.

To score a model on labeled data: python -m bert_jax.evaluate --help.
"""


# Option that only some tasks have → its default, and these tasks.
_OPTIONS: dict[str, tuple[Any, Collection[str]]] = {
    'top': (5, ['fill_mask']),
    'unit': ('text', ['embed']),
    'pooling': (None, ['embed']),
    'layer': (-1, ['embed']),
    'max_length': (None, PRETRAINED),
    'overlap': (0.25, [*PRETRAINED, 'classify']),
    'variant': ('tokens', ['pseudo_likelihood', 'pairs']),
    'long_texts': (None, ['embed', 'pseudo_likelihood', 'classify']),
    'no_answer': (False, ['answer']),
    'probabilities': (False, ['classify', 'tag', 'prompt']),
    **{name: (None, ['prompt']) for name in prompt_flags.OPTIONS},
    'words': (None, ['tag', 'spans', 'embed']),
    'input_format': ('auto', ['embed', *(kind.predict_task for kind in PROBLEMS.values())]),
}


def read_lines(path: str, encoding: str = 'utf-8') -> Iterator[str]:
    """Yield the lines of a plain or compressed file, or of stdin for '-', without line ends.

    A byte order mark is skipped.

    Raises:
        UserError: the file cannot be read, is empty, or has bytes that are not in the encoding.
    """
    text_files.check_encoding(encoding, '--encoding')
    number, lines = (
        0,
        text_files.read_lines('/dev/stdin' if path == '-' else path, encoding, option='--encoding'),
    )
    for number, line in enumerate(lines, start=1):
        if text_files.has_surrogates(line):
            raise errors.UserError(
                f'{path}, line {number}: not valid {encoding}; set --encoding, such as latin-1'
            )
        yield line
    if not number:
        raise errors.UserError(f'{path} is empty')


def _input_lines(flags: Namespace, predictor: Any) -> Iterator[str]:
    """Yield the lines of the input, or those that stand for the rows of a table."""
    fields = table_input.text_fields(flags.task, flags.unit)
    file_format = table_input.format_of(flags.input, fields)
    if not file_format or flags.input_format != 'auto':
        return read_lines(flags.input, flags.encoding)
    data = predictor.data_config({'encoding': flags.encoding})
    return table_input.read_lines(flags.input, file_format, flags.task, fields, data)


@contextlib.contextmanager
def _complete_file(path: str) -> Iterator[BinaryIO]:
    """Open a file that gets its name once it is complete, or stdout for '-'."""
    if path == '-':
        yield sys.stdout.buffer
        sys.stdout.flush()
        return
    with (
        errors.writing(f'--output={path}'),
        files.new_file(paths.path(path)) as partial,
        open(partial, 'wb') as file,
    ):
        yield file


def _write_records(file: BinaryIO, records: Iterable[Record]) -> None:
    for record in records:
        file.write((json.dumps(record, ensure_ascii=False) + '\n').encode())


def _interleave_models(
    task: Task, predictors: Mapping[str, Any], lines: list[str], flags: Namespace
) -> Iterator[Record]:
    """Yield for each line the record of every model, with the name of the model in 'model'."""
    by_model = [task(predictor, iter(lines), flags) for predictor in predictors.values()]
    for records in zip(*by_model, strict=True):
        for name, record in zip(predictors, records, strict=True):
            yield {'model': name, **record}


def _parse(arguments: Sequence[str] | None) -> Namespace:
    parser = FlagParser(
        'python -m bert_jax.predict',
        description='Run a trained model on texts: one text a line in, one JSON object a line out.',
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    models = parser.add_mutually_exclusive_group(required=True)
    models.add_argument(
        '--tuned',
        help='comma-separated runs of parameter-efficient tuning, which all answer; each record '
        'names its run; runs with the same base share its parameters in memory',
    )
    models.add_argument('--model', help=MODEL_HELP)
    tasks = dict.fromkeys([*PRETRAINED, *(kind.predict_task for kind in PROBLEMS.values())])
    add('--task', required=True, choices=tasks, metavar='TASK', help='one of the tasks below')
    add('--input', required=True, help='file with one text or example a line or row; - for stdin')
    add('--output', required=True, help='file to write; - for stdout; .npz for embed')
    add('--overwrite', action='store_true', help=outputs.HELP)
    add('--top', type=positive, help='fill_mask: number of tokens for each [MASK] (default 5)')
    add(
        '--unit',
        choices=['text', 'word', 'span'],
        help='embed: a vector for each text (default), word or span of characters',
    )
    add(
        '--pooling',
        help='embed: mean or max of all tokens, cls ([CLS]), or tokens (a vector each); default: '
        'mean, or the pooling, dense layers and normalization of a sentence-transformers folder; '
        'for words and spans: mean (default), sum or first of their subwords',
    )
    add(
        '--layer',
        help='embed: layer number, 0 for the embeddings, negative from the last (default -1); or '
        'sum_last_4, mean_last_4, concat_last_4, or all (a vector of each layer)',
    )
    add(
        '--max_length',
        type=int,
        help='pretrained models: tokens in a window of a long text (default and limit: the length '
        'of the model)',
    )
    add(
        '--overlap',
        type=float,
        help='share of a window that the next window repeats (default 0.25; tag, spans and answer '
        'use the value of the training)',
    )
    add(
        '--long_texts',
        choices=['windows', 'truncate'],
        help='embed, pseudo_likelihood: windows (default), or truncate (default of embed for a '
        'sentence-transformers folder); classify: truncate (default), or windows whose '
        'probabilities are averaged',
    )
    add(
        '--variant',
        choices=VARIANTS,
        help='pseudo_likelihood, pairs: tokens (default), or word_l2r, where the later subwords of '
        'the same word are masked too',
    )
    add(
        '--probabilities',
        action='store_true',
        default=None,
        help='classify, tag, prompt: write the probabilities of all classes; prompt: also of all '
        'answers',
    )
    add(
        '--no_answer',
        action='store_true',
        default=None,
        help='answer: leave a question unanswered if no answer is more probable, as published '
        'models of SQuAD 2.0 are used (default: as in training)',
    )
    prompt_flags.add(parser, 'prompt: ')
    add(
        '--words',
        choices=word_spans.SPLITTERS,
        help='tag, spans, embed --unit=word: split text into words at whitespace, or also at '
        'punctuation (default: as in the training data; embed: whitespace)',
    )
    add(
        '--input_format',
        choices=['auto', 'text', 'jsonl'],
        help='fine-tuned models, embed of words and spans: every line is text, or JSON; auto '
        '(default): JSON after {; tables by the name of the file',
    )
    add('--encoding', default='utf-8', help='encoding of the input (default utf-8)')
    add(
        '--batch_tokens',
        type=positive,
        default=1024,
        help='padded tokens of a batch (default 1024)',
    )
    add('--dtype', default='float32', help='float32 (default) or bfloat16')
    flags = parser.parse(arguments)
    _check(flags)
    if flags.output != '-':
        outputs.check_file(flags.output, flags.overwrite)
    return flags


def _check(flags: Namespace) -> None:
    """Fill in the defaults. Raises UserError for options that do not fit the task or each other."""
    for name, (default, tasks) in _OPTIONS.items():
        if getattr(flags, name) is None:
            setattr(flags, name, default)
        elif flags.task not in tasks:
            raise errors.UserError(
                f'--{name} is an option of {", ".join(tasks)}, not of --task={flags.task}'
            )
    with contextlib.suppress(ValueError):
        flags.layer = int(flags.layer)
    if flags.task == 'classify' and flags.overlap != 0.25 and flags.long_texts != 'windows':
        raise errors.UserError('--overlap of classify needs --long_texts=windows')
    if flags.unit != 'text' and flags.long_texts:
        raise errors.UserError(f'--long_texts is not an option of --unit={flags.unit}')
    if flags.task == 'embed':
        if flags.tuned:
            raise errors.UserError(
                '--tuned writes JSON records, but embed writes vectors; set --model'
            )
        if flags.words and flags.unit != 'word':
            raise errors.UserError('--words of embed needs --unit=word')
        if not flags.output.endswith('.npz'):
            raise errors.UserError(
                f'--output={flags.output}: embed writes NumPy files; end it in .npz'
            )


@errors.exit_cleanly
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` is sys.argv[1:] by default."""
    flags = _parse(argv)  # before the slow imports
    from bert_jax.training import runtime

    runtime.configure()
    import jax

    import bert_jax

    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)
    names = flags.tuned.split(',') if flags.tuned else [flags.model]
    with progress.bar(unit=' windows') as bar:
        options = dict(
            dtype=flags.dtype,
            max_length=flags.max_length,
            overlap=flags.overlap,
            batch_tokens=flags.batch_tokens,
            advance=bar.update,
        )
        predictors = {
            name: prompt_flags.apply(bert_jax.load(name, **options), flags) for name in names
        }
        if flags.no_answer:
            predictors = {n: p.with_settings(no_answer=True) for n, p in predictors.items()}
        for predictor in predictors.values():
            predictor.require('pseudo_likelihood' if flags.task == 'pairs' else flags.task)
        task = PRETRAINED.get(flags.task, predict_finetuned)
        lines = _input_lines(flags, next(iter(predictors.values())))
        with _complete_file(flags.output) as file:
            if flags.tuned:
                _write_records(file, _interleave_models(task, predictors, list(lines), flags))
            elif flags.task == 'embed':
                is_grouped = flags.unit != 'text' or flags.pooling == 'tokens'
                vectors = task(predictors[flags.model], lines, flags)
                vector_file.write(file, vectors, str(paths.local(flags.output).parent), is_grouped)
            else:
                _write_records(file, task(predictors[flags.model], lines, flags))
    counts: Counter[str] = sum((model.counts for model in predictors.values()), Counter())
    for what, number in counts.items():  # the sum has no zeros
        errors.warn(f'{number:,} {what}')


if __name__ == '__main__':
    main()
