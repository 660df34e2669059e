"""Every command that a study or an experiment starts or prints is accepted by its program.

Nothing is trained: `runner.run_once` is replaced by the checks that the command itself makes before
it reads data, and what a run would write is replaced by a mock. Pretraining is also built, on the
placeholder of a corpus.
"""

import argparse
import functools
import importlib
import json
import pathlib
import shlex
from unittest import mock

import pytest

from bert_jax.corpus import placeholder_corpus
from bert_jax.errors import UserError
from bert_jax.tasks.pretraining import builder
from bert_jax.tasks.pretraining.stage_settings import stage_settings
from experiments.benchmarks import prepare as prepare_benchmark
from experiments.books import evaluate as books_evaluation
from experiments.books import run as books
from experiments.compiled import run as compiled
from experiments.finetuning import run as finetuning
from experiments.finetuning import tasks as finetuning_tasks
from experiments.finetuning import tuning
from experiments.glue import layouts
from experiments.glue import run as glue
from experiments.studies import runner
from experiments.studies.bio_spans import run as bio_spans
from experiments.studies.cloze_prefix import run as cloze_prefix
from experiments.studies.comparison import run as comparison
from experiments.studies.denoising import run as denoising
from experiments.studies.diffusion import run as diffusion
from experiments.studies.embeddings import run as embeddings
from experiments.studies.embeddings import tasks as embedding_tasks
from experiments.studies.embeddings import tiny as tiny_embeddings
from experiments.studies.languages import run as languages
from experiments.studies.linguistic_curves import run as linguistic_curves
from experiments.studies.masking_rate import run as masking_rate
from experiments.studies.model_size import run as model_size
from experiments.studies.multilinguality import run as multilinguality
from experiments.studies.objectives import run as objectives
from experiments.studies.race import rates
from experiments.studies.race import run as race
from experiments.studies.translation import run as translation
from tests import printed_commands

STEPS = 600
SECONDS = 0.1  # of a step
PAGES = sorted((printed_commands.ROOT / 'experiments').glob('**/*.md'))


@functools.cache
def make_tokenizer(*arguments):
    return placeholder_corpus.make_tokenizer(*arguments)


def build(config):
    """Build a run as bert_jax.main does before it prepares a corpus (rehearsal.py)."""
    longest = max(stage.sequence_length for stage in stage_settings(config.training))
    data = config.data
    # Other runs of the study make the tokenizers that are files.
    kind = data.tokenizer if data.tokenizer.startswith('train:') else 'train:unigram:8000'
    tokenizer = make_tokenizer(kind, data.lowercase, data.strip_accents)
    corpus = placeholder_corpus.PlaceholderCorpus.of(tokenizer, longest)
    builder.build(config, corpus, evaluate_further=False)


@pytest.fixture
def options(monkeypatch, tmp_path):
    """The options of all studies; each command they start is checked, and nothing is run."""
    programs = []

    def check(folder, command, folder_flag):
        assert command[0] == '-m'
        program, arguments = command[1], [*command[2:], f'{folder_flag}={folder}']
        programs.append(program)
        if program != 'bert_jax.main':
            printed_commands.check(printed_commands.Command(program, arguments))
            return
        config = printed_commands.check_training(arguments)
        if config.task == 'pretraining' and not config.init_from:
            build(config)

    monkeypatch.setattr(runner, 'run_once', check)
    monkeypatch.setattr(runner, 'read_results', lambda folder: mock.MagicMock())
    monkeypatch.setattr(runner, 'cached_measures', lambda folder, measure: {})
    return argparse.Namespace(
        texts='novels/*.txt',
        steps=STEPS,
        seeds=1,
        runs=str(tmp_path / 'runs'),
        output=str(tmp_path / 'output'),
        minutes=2.0,
        data='data',
        pairs='blimp/*.jsonl',
        per_paradigm=30,
        task_steps=300,
        decoding='threshold',
        tasks=list(comparison.downstream.TASKS),
        modes=list(comparison.downstream.MODES),
        variants=list(comparison.VARIANTS),
        treebank=None,
        weights='WEIGHTS',
        train='train.conll',
        dev='dev.conll',
        rate=1e-4,
        pretraining=1500,
        examples=400,
        init_from='WEIGHTS',
        set=[],
        programs=programs,
    )


def variants_of_run_all(options):
    """Return study → its runs, for the studies that train them by `runner.run_all`."""
    texts, steps = options.texts, options.steps
    blocks = {f'size, {name}': model_size.variants(name, steps) for name in model_size.BLOCKS}
    return blocks | {
        'languages': languages.variants(texts, 'bibles'),
        'linguistic curves': linguistic_curves.variants(steps, 'treebank', 'blimp/*.jsonl'),
        'masking rate': masking_rate.VARIANTS,
        'multilinguality': multilinguality.variants(texts, 'bibles', steps),
        'objectives': objectives.VARIANTS,
    }


def test_runs_of_pretraining_are_accepted(options):
    number = 0
    for runs in variants_of_run_all(options).values():
        runner.run_all(options, runs, dict)
        number += len(runs)
    assert options.programs == ['bert_jax.main'] * number
    assert number > 35


def test_runs_of_the_race_are_accepted(options):
    times = {name: [SECONDS] * len(keys['training.steps']) for name, keys in race.ENTRIES.items()}
    race.measure_tasks(options, pathlib.Path('RUN'), 0)
    tasks = ['bert_jax.main'] * len(race.downstream.TASKS) + ['bert_jax.analyze']
    assert options.programs == tasks
    options.data = options.pairs = None  # the tasks are the same for all entries
    race.race(options, list(race.ENTRIES), times)
    rates.measure(options)
    number = len(race.ENTRIES) + len(rates.SIZES) * len(rates.FACTORS)
    assert len(options.programs) == len(tasks) + number


def test_runs_that_pretrain_and_fine_tune_are_accepted(options):
    steps = dict.fromkeys(comparison.PRETRAINING, STEPS) | {'not trained': 1}
    for name in comparison.VARIANTS:
        comparison.measure(options, name, steps, 0)
    for name in denoising.VARIANTS:
        steps = dict.fromkeys(denoising.VARIANTS, STEPS) | {denoising.NOT_TRAINED: 1}
        denoising.measure(options, steps, name, 0)
    times = dict.fromkeys(diffusion.OBJECTIVES, [SECONDS])
    for name in diffusion.VARIANTS:
        diffusion.measure(options, name, times, 0)
    assert {*cloze_prefix.VARIANTS.values()} <= {*diffusion.VARIANTS}
    for name in (translation.PRETRAINED, translation.SCRATCH, translation.LONG):
        translation.translate(options, name, 0)


def test_runs_of_fine_tuning_are_accepted(options, monkeypatch):
    for module in (finetuning, books_evaluation):  # both read the runs of a sweep
        monkeypatch.setattr(module, 'read_sweep', lambda *_: mock.MagicMock())
    for name in finetuning_tasks.TASKS:
        finetuning.run_side(finetuning.OURS, name, options)
    monkeypatch.setattr(tuning, '_checkpoint_size', lambda path: 0.0)
    for method in tuning.METHODS:  # all are possible for this task
        tuning.run_ours(method, 'banking77', options, STEPS, 3)
    tuning.run_ours('lora', 'banking77', options, STEPS, 1)
    for name in bio_spans.KINDS:
        bio_spans.train(options, name, 0)
    for name in embedding_tasks.TASKS:
        embeddings.run_ours(name, 0, pathlib.Path('table.csv'), options)
    keys = tiny_embeddings.config_keys('RUN', pathlib.Path('data'), STEPS)
    command = runner.main_command('configs/finetune.py:embedding', keys)
    runner.run_once(pathlib.Path('run'), command, '--config.workdir')
    for name in books_evaluation.TASKS.values():
        books_evaluation.fine_tune(pathlib.Path('run'), pathlib.Path('RUN'), name, 1e-3, options)


def test_runs_of_glue_are_accepted(options, tmp_path):
    for name in layouts.TASKS:
        folder = tmp_path / 'glue' / name
        folder.mkdir(parents=True)
        for split in ('train', 'dev', 'dev_matched', 'dev_mismatched'):
            (folder / f'{split}.tsv').touch()
    found = layouts.find(tmp_path / 'glue')
    for name, one in found.items():
        if isinstance(one, layouts.Found):
            glue.train(name, one, options)
    assert len(options.programs) == len(layouts.TASKS)


def test_further_commands_are_accepted(options):
    books_evaluation.score_pairs(pathlib.Path('run'), pathlib.Path('RUN'), 'blimp/*.jsonl', 30)
    folder = pathlib.Path('books')
    for command in (
        books.prepare_command(folder, 'train:wordpiece:16000'),
        prepare_benchmark.prepare_command(folder, 'train:wordpiece:8000', 2),
    ):
        assert command[:2] == ['-m', 'bert_jax.prepare']
        printed_commands.check(printed_commands.Command(command[1], command[2:]))


def test_commands_of_benchmarks_and_compiled_steps_are_accepted(monkeypatch):
    monkeypatch.syspath_prepend(printed_commands.ROOT / 'experiments/benchmarks')
    startup = importlib.import_module('startup')
    printed_commands.check_training(startup.ARGUMENTS)
    for text in json.loads(compiled.GOLDEN.read_text()):
        printed_commands.check_training(compiled.overrides(compiled.parse(shlex.split(text))))


def test_an_unknown_key_and_two_kinds_of_warmup_are_refused(options):
    for keys, message in (
        ({'masking.rates': 0.3}, 'unknown config key masking.rates'),
        ({'schedule.warmup_fraction': 0.02}, 'schedule.warmup_steps is'),
        ({'masking.rate': 0.5}, 'masking.rate'),  # more than max_predictions
    ):
        with pytest.raises(UserError, match=message):
            runner.run_all(options, {'wrong': keys}, dict)


@pytest.mark.parametrize('page', PAGES, ids=lambda page: str(page.parent.name))
def test_printed_commands_are_accepted(page):
    variables = {}
    for printed in printed_commands.commands([page]):
        command = printed_commands.parse(printed.text, variables)
        if command:
            printed_commands.check(command)
