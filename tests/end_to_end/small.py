"""configs/tiny.py reduced to a run of seconds, on a text that the test writes."""

import pathlib
import random

from configs import tiny
from tests.end_to_end import commands
from tests.end_to_end.commands import Command

TOPICS = {
    'sea': ('ship', 'wave', 'salt', 'harbour', 'sail', 'storm', 'anchor', 'gull'),
    'farm': ('cow', 'barn', 'wheat', 'plough', 'field', 'hen', 'milk', 'fence'),
    'city': ('street', 'tower', 'tram', 'market', 'bridge', 'lamp', 'crowd', 'square'),
    'space': ('star', 'rocket', 'orbit', 'moon', 'planet', 'comet', 'dust', 'crater'),
}

# Changes for `config` to a run of two steps, which compiles one training step.
ONE_STAGE = {
    'training__steps': (2,),
    'training__sequence_length': (16,),
    'training__batch_size': (16,),
    'training__accumulation': (1,),
    'training__max_predictions': (3,),
    'schedule__warmup_steps': 1,
}
ONE_STAGE_ARGUMENTS = tuple(
    f'--config.{key.replace("__", ".")}={value}' for key, value in ONE_STAGE.items()
)


def write_text(folder: pathlib.Path, documents: int = 60, seed: int = 0) -> str:
    """Write a text whose documents have one topic each, unless it exists; return its source."""
    rng = random.Random(seed)
    texts = []
    for _ in range(documents):
        words = TOPICS[rng.choice(sorted(TOPICS))]
        sentences = [
            f'The {rng.choice(words)} and the {rng.choice(words)} near the {rng.choice(words)} .'
            for _ in range(rng.randint(4, 12))
        ]
        texts.append(' '.join(sentences))
    path = folder / 'text.txt'
    if not path.exists():
        path.write_text('\n\n'.join(texts), encoding='utf-8')
    return f'text:{path};documents=blank_line'


def changes(folder: pathlib.Path) -> dict:
    """Return the changes to configs/tiny.py as key → value, for `config` and `arguments`."""
    return {
        'workdir': str(folder / 'run'),
        'data.sources': (write_text(folder),),
        'data.corpus': str(folder / 'corpus'),
        'data.tokenizer': 'train:wordpiece:120',
        'data.held_out_fraction': 0.2,
        'data.prepare_workers': 0,
        'model.hidden_size': 32,
        'model.num_layers': 1,
        'model.num_heads': 2,
        'model.intermediate_size': 64,
        'model.max_position_embeddings': 32,
        'model.hidden_dropout': 0.1,
        'model.attention_dropout': 0.1,
        'training.steps': (30, 20),
        'training.sequence_length': (16, 32),
        'training.batch_size': (16, 8),
        'training.max_predictions': (3, 5),
        'schedule.learning_rate': 0.005,
        'schedule.warmup_steps': 5,
        'evaluation.every_steps': 25,
        'evaluation.examples': 32,
        'evaluation.cloze_examples': 0,
        'checkpoint.every_steps': 10,
        'logging.every_steps': 5,
    }


def config(folder: pathlib.Path, **more):
    """Return the config for a run in this process; `more` has keys with '__' for '.'."""
    made = tiny.get_config()
    keys = {key.replace('__', '.'): value for key, value in more.items()}
    made.update_from_flattened_dict(changes(folder) | keys)
    return made


def arguments(folder: pathlib.Path, *given: str, config_file: str = 'configs/tiny.py') -> list[str]:
    """Return arguments for `python -m bert_jax.main`; those in `given` override `changes`."""
    flags = {f'--config.{key}': value for key, value in changes(folder).items()}
    overridden = {argument.partition('=')[0] for argument in given}
    kept = [f'{flag}={value}' for flag, value in flags.items() if flag not in overridden]
    return [f'--config={config_file}', *kept, *given]


def start(folder: pathlib.Path, *given: str, config_file='configs/tiny.py', **options) -> Command:
    """Start the command line of training; `options` are those of Command."""
    return Command('bert_jax.main', arguments(folder, *given, config_file=config_file), **options)


def run(folder: pathlib.Path, *given: str) -> tuple[int, str]:
    """Run the command line of training in this process and return (exit status, stderr)."""
    done = commands.here('bert_jax.main', *arguments(folder, *given))
    return done.returncode, done.stderr


def run_alone(folder: pathlib.Path, *given: str, **options) -> tuple[int, str]:
    """`run` in a process of its own; `options` are those of `start`."""
    command = start(folder, *given, **options)
    _, stderr = command.communicate()
    return command.returncode, stderr
