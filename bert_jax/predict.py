"""Runs a trained model on texts: one text a line in, one JSON object a line out.

    python -m bert_jax.predict --model=runs/tiny --task=fill_mask --input=texts.txt --output=-
    … --task=embed --pooling=mean --input=sentences.txt --output=vectors.npz
    python -m bert_jax.predict --model=runs/sst2 --task=classify --input=reviews.txt --output=-

--help describes every task, its input and its output. The Python equivalent is `bert_jax.load`.
"""

import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from bert_jax import errors, files, flag_parser, progress
from bert_jax.cli import search_flags
from bert_jax.cli.line_tasks import PRETRAINED, Task, predict_finetuned
from bert_jax.cli.request import Request
from bert_jax.inference import conllu_file, table_input, vector_file
from bert_jax.labels.dependencies import split_sentences
from bert_jax.storage import outputs, paths
from bert_jax.text import scripts, text_files
from bert_jax.types import JsonObject

_DESCRIPTION = 'Run a trained model on texts: one text a line in, one JSON object a line out.'
_EPILOG = """\
tasks of pretrained models (input: one text a line):
  fill_mask          tokens for every [MASK] of a line. Needs a masked-language-model head.
                     {"text", "masks": [[{"token", "probability"}, ...], ...]}
  embed              vectors, as a NumPy .npz: `embeddings` [texts, D]; with --pooling=tokens
                     [tokens, D] and `offsets` [texts + 1], the first token of each text; with
                     --unit=word or span [words, D], `offsets` and `spans` [words, 2], the
                     characters of each. Words: a text or {"words": ["...", ...]} a line;
                     spans: {"text": "...", "spans": [[start, end], ...]}, in characters
  search             the texts of --documents that are nearest to each query, as JSON or text
                     {"query", "results": [{"id", "score", "text"}, ...]}
  mine               hard negatives for training: the texts of --documents that are near a query,
                     QUERY<tab>ANSWER... or {"query", "positives"}, and none of its answers
                     {"query", "positive", "negatives", "scores"}
  terms              the terms of the vocabulary with the largest weights in a text, as SPLADE
                     models give them, and how many have a weight
                     {"text", "active", "terms": [{"token", "weight"}, ...]}
  pseudo_likelihood  log probability of each token when it is masked, in nats; for a causal model,
                     log probability given the tokens to its left
                     {"text", "pseudo_log_likelihood", "tokens", "log_probabilities"}
  pairs              compare two sentences, TEXT<tab>TEXT; "preferred" is 0, 1 or null (a tie)
                     {"texts", "pseudo_log_likelihoods", "of_shared_tokens", "preferred"}
  likelihood_bound   lower bound on the log likelihood of a text, in nats, for models of masked
                     diffusion: the mean over --draws
                     {"text", "log_likelihood", "standard_error", "num_tokens"}
  generate           masked language models: fill the gaps of a line, [MASK] or [MASK:5] for five
                     tokens, anywhere in it, and write --new_tokens after it; causal models: write
                     --new_tokens after it; see docs/generation.md
                     {"prompt", "text", "written": ["...", ...], "tokens", "log_probabilities",
                     "steps"}, the step in which each token was written

tasks of fine-tuned models (input: one example a line; output: lines as in dev/predictions.jsonl of
the run, without "gold"):
  classify   classification, multi_label, a text, or TEXT<tab>TEXT for a pair, or
             regression,                  {"text": "...", "text2": "..."}
             multi_regression
             multiple_choice              {"premise": "...", "choices": ["...", ...]}
             relation, word_in_context,   {"text": "...", "marks": [[start, end], [start, end]]},
             coreference                  in characters; with "text2" the second mark is in it
  tag        tagging                      a text, or {"words": ["...", ...]} (or "tokens")
  parse      parsing                      a text, or {"words": ["...", ...]} (or "tokens"); or a
                                          .conllu file. An --output named .conllu is CoNLL-U: the
                                          sentences of the input with HEAD and DEPREL
  spans      spans                        a text, or {"words": ["...", ...]} (or "tokens")
  answer     question_answering           QUESTION<tab>CONTEXT, or
                                          {"question": "...", "context": "..."}
  rerank     reranking, regression of pairs,  QUERY<tab>DOCUMENT<tab>DOCUMENT..., or
             and CrossEncoder folders         {"query": "...", "documents": ["...", ...]}
  respond    instructions                 a prompt, or {"prompt": "...", "system": "..."}, or
                                          {"messages": [{"role", "content"}, ...]}
  chat       instructions                 one message of the user a line; answers on stdout
  prompt     prompt; with --template any  a text, or TEXT<tab>TEXT for {text} and {text2}, or
             pretrained model with a      {"FIELD": "...", ...} for the fields of the template
             masked-language-model head
  write      generation                   a text, or TEXT<tab>TEXT for templates with {text2}

A .csv, .tsv, .parquet or .json file is a table: its rows are the examples, and its columns have
the names of these fields or those of data.columns in training. For tasks of pretrained models, a
.jsonl file is a table too, and the texts are in the column text (pairs: text and text2).
A line that starts with { must be a JSON object, unless --input_format=text; its "id" is kept.
Line N gets the id "input N" if it has none.
Text for tag, parse and spans is split into words like the training data; see --words.
Examples that are too long are counted at the end: see --long_texts.

Four tasks write text. Pretrained models: generate continues texts or fills their gaps. Fine-tuned
models: write gives the target text of each source, as a run of the problem generation learned it;
after the problem instructions, respond answers each line of a file, and chat is a conversation.

To score a model on labeled data: python -m bert_jax.evaluate --help.
"""


# Task → the method of a predictor that it needs, if it is not of the same name.
_METHODS = {'pairs': 'pseudo_likelihood', 'search': 'embed', 'mine': 'embed', 'terms': 'fill_mask'}


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
        if scripts.has_surrogates(line):
            raise errors.UserError(
                f'{path}, line {number}: not valid {encoding}; set --encoding, such as latin-1'
            )
        yield line
    if not number:
        raise errors.UserError(f'{path} is empty')


def _input_lines(request: Request, predictor: Any) -> Iterator[str]:
    """Yield the lines of the input, or those that stand for the rows of a table."""
    source = request.input, request.task, request.unit, request.input_format
    file_format = table_input.format_read(*source)
    if not file_format:
        return read_lines(request.input, request.encoding)
    fields = table_input.text_fields(request.task, request.unit)
    data = predictor.data_config({'encoding': request.encoding})
    return table_input.read_lines(request.input, file_format, request.task, fields, data)


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


def _write_records(file: BinaryIO, records: Iterable[JsonObject], as_text: bool = False) -> None:
    for record in records:
        line = search_flags.as_text(record) if as_text else json.dumps(record, ensure_ascii=False)
        file.write(f'{line}\n'.encode())


def _interleave_models(
    task: Task, predictors: Mapping[str, Any], lines: list[str], request: Request
) -> Iterator[JsonObject]:
    """Yield for each line the record of every model, with the name of the model in 'model'."""
    by_model = [task(predictor, iter(lines), request) for predictor in predictors.values()]
    for records in zip(*by_model, strict=True):
        for name, record in zip(predictors, records, strict=True):
            yield {'model': name, **record}


def _writes_conllu(request: Request) -> bool:
    return request.task == 'parse' and conllu_file.has_suffix(request.output)


def _check(request: Request) -> None:
    """Raise UserError for flags that do not fit each other."""
    missing = [f'--{name}' for name in ('input', 'output') if not getattr(request, name)]
    if missing and request.task != 'chat':
        are, them = ('are', 'them') if missing[1:] else ('is', 'it')
        raise errors.UserError(f'{", ".join(missing)} {are} missing; --help describes {them}')
    if request.task == 'chat':
        if request.output not in ('', '-'):
            raise errors.UserError('chat answers on the terminal; leave --output out, or redirect')
        if request.tuned:
            raise errors.UserError('chat uses one model; set --model instead of --tuned')
    if bool(request.tuned) == bool(request.model):
        raise errors.UserError('give either --tuned or --model; --help describes them')
    if (
        request.task == 'classify'
        and request.overlap != Request.overlap
        and request.long_texts != 'windows'
    ):
        raise errors.UserError('--overlap of classify needs --long_texts=windows')
    request.check_search(request.task, request.tuned, request.top)
    request.check_mining(request.task, request.seed)
    for name in ('long_texts', 'prompt_name', 'dimensions'):
        if request.unit != 'text' and getattr(request, name):
            raise errors.UserError(f'--{name} is not an option of --unit={request.unit}')
    if request.tuned and _writes_conllu(request):
        raise errors.UserError('--tuned writes JSON records; end --output in .jsonl')
    if request.task == 'embed':
        if request.tuned:
            raise errors.UserError(
                '--tuned writes JSON records, but embed writes vectors; set --model'
            )
        if request.words and request.unit != 'word':
            raise errors.UserError('--words of embed needs --unit=word')
        if not request.output.endswith('.npz'):
            raise errors.UserError(
                f'--output={request.output}: embed writes NumPy files; end it in .npz'
            )
    if request.output not in ('', '-'):
        outputs.check_file(request.output, request.overwrite)


def _chat(predictor: Any, request: Request) -> None:
    """Answer lines of a terminal or a file until they end."""
    from bert_jax.inference import chat

    is_terminal = request.input in ('', '-') and sys.stdin.isatty()
    lines = _typed_lines() if is_terminal else read_lines(request.input or '-', request.encoding)
    responder = predictor.responder(**request.generate_options())
    chat.chat(responder, lines, _show, errors.warn, request.system)
    _warn_of(predictor.counts)


def _typed_lines() -> Iterator[str]:
    """Ask for lines on a terminal until its end (Ctrl-D)."""
    while True:
        try:
            yield input('> ')
        except EOFError:
            return


def _show(piece: str) -> None:
    print(piece, end='', flush=True)


def _warn_of(counts: Counter[str]) -> None:
    for what, number in counts.items():
        if number:
            errors.warn(f'{number:,} {what}')


@errors.exit_cleanly
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` is sys.argv[1:] by default."""
    request = flag_parser.parse(Request, argv, 'python -m bert_jax.predict', _DESCRIPTION, _EPILOG)
    _check(request)  # before the slow imports
    from bert_jax.training import runtime

    runtime.configure()
    import jax

    import bert_jax

    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)
    names = request.tuned.split(',') if request.tuned else [request.model]
    with progress.bar(unit=' windows') as bar:
        options: dict[str, Any] = dict(
            dtype=request.dtype,
            max_length=request.max_length,
            overlap=request.overlap,
            batch_tokens=request.batch_tokens,
            advance=None if request.task == 'chat' else bar.update,
        )
        predictors = {name: request.apply_prompt(bert_jax.load(name, **options)) for name in names}
        if request.no_answer:
            predictors = {n: p.with_settings(no_answer=True) for n, p in predictors.items()}
        if request.task == 'write' and (settings := request.write_settings()):
            predictors = {n: p.with_settings(**settings) for n, p in predictors.items()}
        for predictor in predictors.values():
            predictor.require(_METHODS.get(request.task, request.task))
        if request.task == 'chat':
            _chat(predictors[request.model], request)
            return
        task = PRETRAINED.get(request.task, predict_finetuned)
        sentences = None
        if request.task == 'parse' and conllu_file.has_suffix(request.input):
            sentences = split_sentences(read_lines(request.input, request.encoding))
            lines = conllu_file.input_lines(request.input, sentences)
        else:
            lines = _input_lines(request, next(iter(predictors.values())))
        with _complete_file(request.output) as file:
            if request.tuned:
                _write_records(file, _interleave_models(task, predictors, list(lines), request))
            elif _writes_conllu(request):
                records = task(predictors[request.model], lines, request)
                conllu_file.write(file, records, sentences)
            elif request.task == 'embed':
                is_grouped = request.unit != 'text' or request.pooling == 'tokens'
                vectors = task(predictors[request.model], lines, request)
                vector_file.write(
                    file, vectors, str(paths.local(request.output).parent), is_grouped
                )
            else:
                records = task(predictors[request.model], lines, request)
                _write_records(file, records, request.output_format == 'text')
    counts: Counter[str] = sum((model.counts for model in predictors.values()), Counter())
    _warn_of(counts)


if __name__ == '__main__':
    main()
