"""Training from Python: `bert_jax.pretrain` and `bert_jax.finetune`.

A call does what the command line does, with the same config, loop and files: it resumes a run that
was interrupted by either, and prints the command that stands for it.
"""

import copy
import dataclasses
import os
import pathlib
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bert_jax import config_keys, given_data, main, problems, progress, recipes
from bert_jax.cli.command_line import unknown_key
from bert_jax.config_keys import Declaration
from bert_jax.errors import UserError
from bert_jax.given_data import Rows, Texts
from bert_jax.storage import paths
from bert_jax.tasks.pretraining import BuildEvaluator
from bert_jax.training.interruption import Interrupted
from bert_jax.training.run import HeldOutEvaluation, Hooks
from bert_jax.training.workdir import DATA
from bert_jax.types import Config, JsonObject, JsonRecord

if TYPE_CHECKING:
    from bert_jax.inference.predictor import Predictor


@dataclasses.dataclass(frozen=True)
class TrainedRun:
    """A finished run or sweep.

    Attributes:
        workdir: its folder.
        results: the contents of its results.json.
        command: the command line that makes the same run.
    """

    workdir: str
    results: JsonObject = dataclasses.field(repr=False)
    command: str

    @property
    def held_out(self) -> dict[str, float]:
        """The held-out metrics by name; for a sweep, read `results`."""
        metrics: dict[str, float] = self.results['held_out']
        return metrics

    def load(self, **options: Any) -> 'Predictor':
        """Load the model, of a sweep the best one; the options are those of `bert_jax.load`."""
        import bert_jax

        best = self.results.get('best_run', '')
        return bert_jax.load(paths.path(self.workdir) / best if best else self.workdir, **options)

    def _repr_markdown_(self) -> str:  # what a notebook shows
        metrics = self.results.get('held_out', {})
        rows = [f'| {name} | {value:.4g} |' for name, value in metrics.items()]
        return '\n'.join([f'| {self.workdir} | held out |', '| --- | --- |', *rows])


def pretrain(
    text: Texts | None = None,
    recipe: str | os.PathLike[str] = 'tiny',
    *,
    column: str = 'text',
    overwrite: bool = False,
    after_step: Callable[[int], object] | None = None,
    after_evaluation: Callable[[HeldOutEvaluation], object] | None = None,
    evaluators: Sequence[BuildEvaluator] = (),
    **keys: Any,
) -> TrainedRun:
    """Pretrain a model, or resume its run.

    Args:
        text: documents: a list or iterable of strings; a table (pandas, polars, pyarrow, datasets,
            or a dictionary of columns) with documents in `column`; paths of files or folders; or a
            source such as 'jsonl:books/*.jsonl;language=en'. None: the text of the recipe.
        recipe: a config of configs/, such as 'tiny' or 'electra:small', or a file of your own.
        column: column of a table that holds the documents.
        overwrite: delete the run in `workdir` first, if there is one.
        after_step: called with the number of completed steps.
        after_evaluation: called with the step, the metrics and the parameters of each evaluation;
            an exception ends the run, which the same call resumes.
        evaluators: build further measures of the parameters; see tasks/pretraining/__init__.py.
        keys: config keys (docs/configs.md): `seed=1`, `workdir='runs/mine'`, the keys of a section
            as a dictionary, `training={'steps': 500}`, or with their dots, `**{'training.steps':
            500}`.

    Returns:
        The finished run. Documents are kept next to the corpus that is made of them,
        in CORPUS.data: other runs on the same documents share both.

    Raises:
        UserError: the text or the config cannot be used; one line says why.
        KeyboardInterrupt: the run was interrupted; everything is saved.
    """
    request = _Request.of(recipe, keys)
    if request.config.task != 'pretraining':
        raise UserError(f'the recipe {recipe!r} fine-tunes; call bert_jax.finetune')
    if text is not None:
        request.require_unset(['data.sources'], 'the text')
        folder = paths.path(f'{request.config.data.corpus}.data')
        request = request.with_values(
            {'data.sources': given_data.text_sources(text, folder, column)}
        )
    return request.run(overwrite, Hooks(after_step, after_evaluation), evaluators)


def finetune(
    train: Rows | Mapping[str, Rows] | None = None,
    base: 'str | os.PathLike[str] | TrainedRun | None' = None,
    problem: str = 'classification',
    *,
    dev: Rows | None = None,
    test: Rows | None = None,
    overwrite: bool = False,
    after_step: Callable[[int], object] | None = None,
    after_evaluation: Callable[[HeldOutEvaluation], object] | None = None,
    **keys: Any,
) -> TrainedRun:
    """Fine-tune a model on labeled examples, or resume its run.

    Args:
        train: the examples: a list of dictionaries with the columns of docs/labeled_data.md; a list
            of tuples (text, label) or (text, second text, label); a table (pandas, polars, pyarrow,
            datasets, or a dictionary of columns); paths or globs of files; or a dictionary with
            the splits 'train', 'dev' and 'test'. None: the data of a named task.
        base: the model to start from: a run, a checkpoint or a Hugging Face folder; None: random
            weights.
        problem: a kind of problem, such as 'tagging', or a named task of configs/finetune.py.
        dev: as `train`; by default a tenth of `train` (`data.dev_fraction`).
        test: as `train`; scored once, after the training.
        overwrite: see `pretrain`.
        after_step: see `pretrain`.
        after_evaluation: see `pretrain`.
        keys: config keys, see `pretrain`; `problem` keys are given with their dot,
            `**{'problem.labels': ('no', 'yes')}`.

    Returns:
        The finished run. Examples that were not files are kept in data/ of its folder.

    Raises:
        UserError: the data, the model or the config cannot be used; one line says why.
        KeyboardInterrupt: the run was interrupted; everything is saved.
    """
    request = _Request.of(f'finetune:{problem}', keys)
    splits = dict(given_data.splits_of(train) or {'train': train})
    for name, rows in (('dev', dev), ('test', test)):
        if rows is not None and name in splits:
            raise UserError(f'the split {name} is given twice')
        splits[name] = splits.get(name) if rows is None else rows
    given = {f'data.{name}': rows for name, rows in splits.items() if rows is not None}
    request.require_unset(given, 'the examples')
    values: JsonRecord = {}
    if base is not None:
        request.require_unset(['init_from'], 'the base')
        values['init_from'] = base.workdir if isinstance(base, TrainedRun) else os.fspath(base)
    columns = _columns_of_tuples(request.config, list(given.values()))
    if 'text2' in columns:  # the other names are the defaults of their keys
        values['data.columns.text2'] = 'text2'
    folder = paths.path(request.config.workdir) / DATA
    for key, rows in given.items():
        name = key.removeprefix('data.')
        values[key] = given_data.labeled_files(rows, folder, name, columns)
    request = request.with_values(values)
    return request.run(overwrite, Hooks(after_step, after_evaluation), ())


def _columns_of_tuples(config: Config, splits: Sequence[Rows]) -> tuple[str, ...]:
    """Return the names of the values of rows that are tuples; () if the problem needs names."""
    kind = problems.find(config.task)
    has_lines = 'labeled_lines' in kind.readers  # of a text and its label
    if not has_lines or 'columns.text2' not in (kind.data_keys or ()):
        return ()
    widths = {given_data.num_values(rows) for rows in splits}
    return ('text', 'text2', 'label') if 3 in widths else ('text', 'label')


@dataclasses.dataclass(frozen=True)
class _Request:
    """A config with the values that the caller gave.

    Attributes:
        file: the config file, as a command line names it.
        config: the config.
        values: key → value, of the keys that were given.
        own_keys: keys that a file outside configs/ sets.
    """

    file: str
    config: Config
    values: JsonObject
    own_keys: frozenset[str]

    @classmethod
    def of(cls, recipe: str | os.PathLike[str], keys: Mapping[str, Any]) -> '_Request':
        """Load a recipe and set keys."""
        name, colon, parameter = os.fspath(recipe).partition(':')
        file = name if name.endswith('.py') else f'configs/{name}.py'
        file += f'{colon}{parameter}'
        located = recipes.locate(file)
        config = recipes.load(located)
        own_keys = frozenset(recipes.own_keys(config, located))
        return cls(file, config, {}, own_keys).with_values(dict(_flatten(keys)))

    def with_values(self, values: Mapping[str, Any]) -> '_Request':
        """Set further keys.

        Raises:
            UserError: a key does not exist, or a value has a wrong type.
        """
        config = copy.deepcopy(self.config)
        declared = config_keys.declarations(config)
        checked = {}
        for key, value in values.items():
            if key not in declared:
                raise unknown_key(key, declared, config.task, self.file)
            checked[key] = _checked(key, value, declared[key])
        config.update_from_flattened_dict(checked)
        return dataclasses.replace(self, config=config, values=self.values | checked)

    def require_unset(self, keys: Iterable[str], what: str) -> None:
        """Raise UserError if the caller set a key that another argument sets."""
        for key in keys:
            if key in self.values:
                raise UserError(f'{key} and {what} are both given; leave one of them out')

    @property
    def command(self) -> str:
        """The command line with these values."""
        flags = [f'--config.{key}={_as_flag(value)}' for key, value in self.values.items()]
        return shlex.join(['python', '-m', 'bert_jax.main', f'--config={self.file}', *flags])

    def run(
        self, overwrite: bool, hooks: Hooks, evaluators: Sequence[BuildEvaluator]
    ) -> TrainedRun:
        """Train as the command line does."""
        config, user_keys = self.config, self.own_keys | self.values.keys()
        if config.debug.batch:
            raise UserError('debug.batch shows a batch on the command line; leave it out')
        if config.sweep.get('vmap') and (hooks != Hooks() or evaluators):
            raise UserError(
                'sweep.vmap trains several runs at once, without callbacks; set sweep.vmap=False'
            )
        progress.say(f'the same as: {self.command}')
        try:
            main.follow_corpus(config, user_keys)
            results = main.run(
                config,
                user_keys=user_keys,
                overwrite=overwrite,
                hooks=hooks,
                evaluators=evaluators,
            )
        except Interrupted as interrupted:
            raise KeyboardInterrupt('saved; call again to resume') from interrupted
        assert results is not None
        return TrainedRun(config.workdir, results, self.command)


def _flatten(keys: Mapping[str, Any], prefix: str = '') -> Iterable[tuple[str, Any]]:
    for name, value in keys.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f'{prefix}{name}.')
        else:
            yield f'{prefix}{name}', value


def _checked(key: str, value: Any, declared: Declaration) -> Any:
    """Return a value as the config holds it.

    Raises:
        UserError: it has a wrong type.
    """
    if value is None:
        declared.check(key, None)
        return None
    if isinstance(value, pathlib.PurePath):
        value = str(value)
    elif hasattr(value, 'tolist'):  # NumPy
        value = value.tolist()
    if declared.kind is tuple:
        value = tuple(value) if isinstance(value, list | tuple) else (value,)
    elif declared.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, declared.kind) or (
        isinstance(value, bool) and declared.kind is not bool
    ):
        raise UserError(f'{key} is {value!r:.60}; it must be {declared.one}')
    declared.check(key, value)
    return value


def _as_flag(value: Any) -> str:
    """Return a value as a command line has it."""
    if isinstance(value, tuple) and len(value) == 1 and isinstance(value[0], str):
        return value[0] if value[0][:1] not in '([\'"' else repr(value)
    return value if isinstance(value, str) else repr(value)
