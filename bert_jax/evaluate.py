"""Scores a fine-tuned model on labeled files, with the report and predictions of a training run.

    python -m bert_jax.evaluate --model=runs/reviews --input=new.tsv --output=runs/reviews/new
    … --input=new.csv --data.format=csv --data.columns.label=stars
    … --template='{text} It was [MASK].' --answers 0=bad 1=good   (any masked language model)

The files are read with the `data` settings of the training run; --data.KEY=VALUE changes one
(docs/configs.md). --problem.KEY=VALUE changes a setting of the problem that a trained model may
change, such as --problem.no_answer=True for a published model of SQuAD 2.0.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from bert_jax import errors, flag_parser, progress
from bert_jax.answers.prompt import PromptFlags
from bert_jax.config_keys import Declaration, declarations, parse_value
from bert_jax.errors import UserError, exit_cleanly
from bert_jax.flag_parser import flag
from bert_jax.labels.data_keys import make_config
from bert_jax.problems import PROBLEMS
from bert_jax.storage import outputs, paths
from bert_jax.types import JsonRecord

Texts: TypeAlias = tuple[tuple[str, str | None], ...]  # KEY, VALUE


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationRequest(PromptFlags):
    """The flags of this command."""

    model: str = flag('folder of a fine-tuned run, or a Hugging Face folder')
    input: tuple[str, ...] = flag('labeled file or glob; may be repeated', form='repeated')
    output: str = flag('folder for metrics.json, report.md, predictions.jsonl')
    overwrite: bool = flag(outputs.HELP, False)
    batch_tokens: int = flag('padded tokens of a batch', 1024, '[1, inf)')
    dtype: str = flag('float32 or bfloat16', 'float32')
    data: Texts = flag('how the files are read, if not as in training', (), form='section')
    problem: Texts = flag('a setting of the problem', (), form='section')


def data_keys() -> dict[str, Declaration]:
    """Return the keys of `--data.KEY`."""
    return declarations(make_config())


def problem_keys() -> dict[str, Declaration]:
    """Return the keys of `--problem.KEY`: settings that a trained model may change."""
    return {
        name: kind.keys[name].declaration
        for kind in PROBLEMS.values()
        for name in kind.answer_settings
    }


def changes(section: str, texts: Texts, keys: Mapping[str, Declaration]) -> JsonRecord:
    """Return the values of the keys of a section; a key that does not exist keeps its text."""
    values = {}
    for key, text in texts:
        name = f'--{section}.{key}'
        if text is None:
            raise UserError(f'{name} has no value; write {name}=VALUE')
        values[key] = parse_value(name, text, keys[key]) if key in keys else text
    return values


def section_keys() -> dict[str, bool]:
    """Return the keys of the sections → whether they hold several texts, for suggestions."""
    keys = [*data_keys().items()], [*problem_keys().items()]
    return {
        f'{section}.{key}': declared.kind is tuple
        for section, found in zip(('data', 'problem'), keys, strict=True)
        for key, declared in found
    }


@exit_cleanly
def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` is sys.argv[1:] by default."""
    request = flag_parser.parse(
        EvaluationRequest, argv, 'python -m bert_jax.evaluate', __doc__, more_names=section_keys
    )
    data = changes('data', request.data, data_keys())
    outputs.check_folder(request.output, request.overwrite, ['predictions.jsonl'])
    from bert_jax.training import runtime

    runtime.configure()
    import bert_jax
    from bert_jax.reports import tables
    from bert_jax.tasks import attention_direction

    model = bert_jax.load(request.model, dtype=request.dtype, batch_tokens=request.batch_tokens)
    model = request.apply_prompt(model)
    if request.problem:
        model = model.with_settings(**changes('problem', request.problem, problem_keys()))
    evaluation = model.evaluate(list(request.input), data, show_progress=True)
    folder = paths.local(request.output)
    with errors.writing(f'--output={request.output}'):
        tables.save_results(
            folder,
            f'{request.model} on {", ".join(request.input)}',
            evaluation.records,
            evaluation.scores,
            evaluation.candidate_labels,
            intervals=evaluation.intervals,
            warnings=evaluation.warnings,
            attention=attention_direction.of_model(model.architecture, model.is_causal),
            losses=evaluation.losses,
        )
        paths.push(request.output)
    for line in evaluation.lines:
        errors.report(line)
    counts = (f'{number:,} {what}' for what, number in model.counts.items() if number)
    for warning in [*counts, *evaluation.warnings]:
        errors.warn(warning)
    names = ', '.join(sorted(path.name for path in folder.iterdir()))
    progress.say(f'{len(evaluation.records):,} examples\n')
    shown = evaluation.scores._replace(metrics=evaluation.metrics)
    progress.say(tables.metrics_markdown(shown, evaluation.intervals))
    progress.say(f'\nwritten to {request.output}: {names}')


if __name__ == '__main__':
    main()
