"""The commands that a run prints at its end, for every kind of run: each is run as printed."""

import contextlib
import os
import shlex
import subprocess
import sys
import tempfile

import jax
import pytest

from bert_jax import export, predict
from bert_jax.cli import command_line
from bert_jax.objectives import OBJECTIVES
from bert_jax.problems import PROBLEMS
from bert_jax.tasks import make_task
from bert_jax.training import run as training_run
from bert_jax.training.workdir import Workdir
from configs import finetune
from tests.end_to_end import small
from tests.end_to_end.commands import ROOT
from tests.end_to_end.test_finetuning import SMALL
from tests.end_to_end.test_objectives import COMMON, RUNS
from tests.problems.reranking import small as small_reranking

# The path of Jurafsky and Martin: pairs are classified by the vector of [CLS], without a pooler.
TEXTBOOK = {
    'objectives.mlm': 1.0,
    'objectives.nsp': 1.0,
    'model.pooler': False,
    'model.pair_pooling': 'first',
    'data.segments': 'pairs',
}
PRETRAINED = RUNS | {'textbook': TEXTBOOK}
# Name of a pretraining run → its task of bert_jax.predict, if not fill_mask.
QUERIES = {
    'replaced': 'embed',
    'disentangled': 'embed',
    'causal': 'generate',
    'both_directions': 'embed',
    'permuted': 'embed',
    'denoised': 'generate',
    'edited': 'embed',
}
PROMPT = {'problem.template': '{text} It was [MASK].', 'data.train': 'sample:sentiment.tsv'}
# Name of a fine-tuning run → its task in configs/finetune.py, and changed keys; 'textbook' and
# 'causal' at init_from are pretraining runs.
FINE_TUNED = {
    **{name: (name, {}) for name in finetune.TASKS if name.startswith('sample_')},
    'sample_instructions': ('sample_instructions', {'init_from': 'textbook'}),
    'sample_summaries': ('sample_summaries', {'init_from': 'causal', 'problem.target_tokens': 8}),
    'prompt': (
        'prompt',
        PROMPT | {'init_from': 'textbook', 'problem.answers': ('positive=good', 'negative=bad')},
    ),
    'sparse_embedding': (
        'sparse_embedding',
        {
            'init_from': 'textbook',
            'data.train': 'sample:pairs.csv',
            'data.columns.texts': ('premise', 'hypothesis'),
        },
    ),
    'late_interaction': (
        'late_interaction',
        {
            'init_from': 'textbook',
            'data.train': 'sample:pairs.csv',
            'data.columns.texts': ('premise', 'hypothesis'),
        },
    ),
    'reranking': ('reranking', {}),
    'no_pooler': ('sample_sentiment', {'init_from': 'textbook'}),
    'crf': ('sample_entities', {'problem.crf': True}),
    'mix': ('sample_sentiment', {'model.head_states': 'mix'}),
    'lora': ('sample_topics', {'init_from': 'textbook', 'transfer.method': 'lora'}),
}
# Fine-tuning runs that transformers can open.
PUBLISHED = (
    *('sample_embedding', 'sample_sentiment', 'sample_pairs', 'sample_similarity', 'sample_topics'),
    *('sample_ratings', 'sample_choice', 'sample_entities', 'sample_pos', 'sample_summaries'),
    *('sample_questions', 'sample_instructions', 'prompt', 'sparse_embedding', 'reranking'),
    'late_interaction',
)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp('next')


def save_untrained(config) -> list[str]:
    """Save a newly initialized run; return the commands that it would print."""
    task = make_task(config)
    with (
        contextlib.closing(Workdir.of(config.workdir)) as workdir,
        training_run.start(task, config, workdir) as run,
    ):
        run.save(run.plan.record(0.0, False))
        run.checkpoints.wait()
        return task.next_commands(run.state.params)


def pretraining_config(folder, name):
    keys = COMMON | PRETRAINED[name] | {'workdir': str(folder / name), 'data.language_alpha': None}
    if 'data.tokenizer' in keys:
        keys['data.corpus'] = str(folder / f'{name}_corpus')
    if name == 'permuted':  # as configs/xlnet.py: the architecture has no number of positions
        keys |= {'model.max_position_embeddings': None}
    return small.config(folder, **{key.replace('.', '__'): keys[key] for key in keys})


def fine_tuning_config(folder, name):
    task, changes = FINE_TUNED[name]
    keys = SMALL | {'workdir': str(folder / name), 'training.steps': 2} | changes
    if task == 'reranking':
        (folder / name).mkdir()
        return small_reranking.config_of(folder / name)
    if base := changes.get('init_from'):
        path = folder / base
        if not path.exists():
            save_untrained(pretraining_config(folder, base))
        keys |= {key: None for key in SMALL if key.startswith('model.')}
        keys |= {'init_from': str(path), 'data.tokenizer': ''}
    config = finetune.get_config(task).unlock()
    if isinstance(keys.get('data.train'), str):
        keys['data.train'] = (keys['data.train'],)
    config.update_from_flattened_dict(keys)
    return config.lock()


def run_here(text: str) -> None:
    """Run a printed command in this process; of a training, only build the initial model."""
    before, _, command = text.rpartition(' | ')
    python, option, program, *arguments = shlex.split(command)
    assert (python, option) == ('python', '-m')
    if program == 'bert_jax.main':
        line = command_line.parse(['main', *arguments], '')
        jax.eval_shape(make_task(line.config, line.user_keys).init, jax.random.key(0))
        return
    with typed(shlex.split(before)[-1] + '\n' if before else ''):
        run = {'bert_jax.predict': predict, 'bert_jax.export': export}[program].main
        if '--help' not in arguments:
            run(arguments)
            return
        with pytest.raises(SystemExit) as ended:
            run(arguments)
        assert not ended.value.code


@contextlib.contextmanager
def typed(text: str):
    """Let this process read a text from its standard input."""
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        before = os.dup(0)
        os.dup2(file.fileno(), 0)
        try:
            yield
        finally:
            os.dup2(before, 0)
            os.close(before)


def run_typed(text: str) -> None:
    """Run a printed command as a user does."""
    environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
    environment['PATH'] = f'{os.path.dirname(sys.executable)}{os.pathsep}{os.environ["PATH"]}'
    done = subprocess.run(
        ['bash', '-c', text], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f'{text}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}'


def count_exports(commands: list[str]) -> int:
    return sum('bert_jax.export' in command for command in commands)


def test_every_objective_and_every_problem_has_a_run():
    kinds = {finetune.get_config(task).task for task, _ in FINE_TUNED.values()}
    assert PROBLEMS.keys() - kinds == {'prompt_regression'}  # as prompt
    named = {key for keys in PRETRAINED.values() for key in keys}
    assert {f'objectives.{name}' for name in OBJECTIVES} <= named


# Runs whose commands differ; tests/tasks/test_next_commands.py has the rules.
QUICK = (
    *('textbook', 'causal', 'replaced', 'denoised'),
    *('sample_sentiment', 'sample_entities', 'sample_questions', 'sample_embedding'),
    *('sample_instructions', 'reranking', 'crf', 'lora'),
)


def some(names) -> list:
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in names]


@pytest.mark.parametrize('name', some(PRETRAINED))
def test_commands_after_pretraining(name, folder, no_loader_process):
    query, tune = save_untrained(pretraining_config(folder, name))
    assert f'--task={QUERIES.get(name, "fill_mask")} ' in query
    assert 'bert_jax.main' in tune
    for command in (query, tune):
        run_here(command)


@pytest.mark.parametrize('name', some(FINE_TUNED))
def test_commands_after_fine_tuning(name, folder, no_loader_process):
    commands = save_untrained(fine_tuning_config(folder, name))
    assert count_exports(commands) == (name in PUBLISHED)
    for command in commands:
        run_here(command)


@pytest.mark.slow
@pytest.mark.parametrize('name', [*PRETRAINED, *FINE_TUNED])
def test_printed_lines_end_without_an_error(name, tmp_path):
    make = pretraining_config if name in PRETRAINED else fine_tuning_config
    for command in save_untrained(make(tmp_path, name)):
        run_typed(command)
