"""Record what small runs compute, and compare a recording with that of another checkout.

    python -m experiments.compatibility.training --output=before.json
    python -m experiments.compatibility.training --output=after.json --compare=before.json

For each kind of run: digests of the initial parameters, of the gradients of the first step and of
the parameters after the last step; the loss and the gradient norm of every step, and the held-out
metrics. Everything is compared bit for bit, so both recordings must be made on one machine.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

# Compile quickly: most of the time is spent in the compiler.
os.environ.setdefault('XLA_FLAGS', '--xla_backend_optimization_level=0')

import jax
import numpy as np

from bert_jax import averages, main, tree_paths
from bert_jax.tasks import make_task
from bert_jax.training.run import Plan
from bert_jax.training.step import make_train_step, step_key
from configs import electra, finetune, t5, tiny

STEPS = 4
WORDS = ('ship', 'wave', 'salt', 'sail', 'storm', 'anchor', 'cow', 'barn', 'wheat', 'field', 'hen')
SIZES = {
    'model.hidden_size': 32,
    'model.num_layers': 2,
    'model.num_heads': 2,
    'model.intermediate_size': 64,
    'model.max_position_embeddings': 64,
}
PRETRAINING = SIZES | {
    'data.tokenizer': 'train:wordpiece:120',
    'data.held_out_fraction': 0.2,
    'data.prepare_workers': 0,
    'training.steps': (STEPS,),
    'training.sequence_length': (32,),
    'training.batch_size': (16,),
    'training.accumulation': (1,),
    'training.max_predictions': (5,),
    'schedule.learning_rate': 0.005,
    'schedule.warmup_steps': 1,
    'evaluation.examples': 32,
    'evaluation.cloze_examples': 0,
}
FINE_TUNING = {
    'training.epochs': 0.0,
    'training.steps': STEPS,
    'training.batch_size': 16,
    'training.sequence_length': 32,
    'schedule.learning_rate': 3e-3,
}


def write_text(path: pathlib.Path) -> None:
    """Write 60 documents of a few sentences."""
    rng = random.Random(0)
    sentence = 'The {} and the {} are near the {} .'
    documents = [
        ' '.join(sentence.format(*rng.choices(WORDS, k=3)) for _ in range(rng.randint(4, 12)))
        for _ in range(60)
    ]
    path.write_text('\n\n'.join(documents), encoding='utf-8')


def configs(folder: pathlib.Path) -> dict[str, Any]:
    """Return the config of each kind of run."""
    source = f'text:{folder / "text.txt"};documents=blank_line'
    made = {
        'mlm_nsp': tiny.get_config(),
        'electra': electra.get_config(),
        't5': t5.get_config('tiny'),
        'clm': tiny.get_config(),
    }
    changes: dict[str, dict[str, Any]] = {
        'electra': {'schedule.warmup_fraction': None},
        't5': {
            'data.tokenizer': 'train:unigram:80:sentinels=10:cls=no',
            'model.max_position_embeddings': None,
            'training.max_predictions': (32,),
            'model.decoder.num_layers': 1,
        },
        'clm': {
            'objectives.mlm': 0.0,
            'objectives.nsp': 0.0,
            'objectives.clm': 1.0,
            'data.segments': 'full_sentences',
        },
    }
    for kind, config in made.items():
        places = {
            'workdir': str(folder / kind),
            'data.sources': (source,),
            'data.corpus': str(folder / f'corpus_{kind}'),
        }
        config.update_from_flattened_dict(places | PRETRAINING | changes.get(kind, {}))
    for kind in ('classification', 'lora'):
        config = finetune.get_config('sample_sentiment')
        config.update_from_flattened_dict(
            FINE_TUNING | {'workdir': str(folder / kind), 'init_from': str(folder / 'mlm_nsp')}
        )
        if kind == 'lora':
            config.transfer.method, config.transfer.rank = 'lora', 4
        made[kind] = config
    return made


def record(config: Any) -> dict[str, Any]:
    """Return what a run computes: digests, losses and metrics."""
    task = make_task(config)
    (stage,) = task.stages
    with Plan.of(task, config) as plan:
        state = plan.initial_state()
        recorded: dict[str, Any] = {'parameters': digest(state.params)}
        extras = (config.spike_factor, config.optimizer.ema, plan.total_steps)
        step = jax.jit(make_train_step(task, plan.optimizer, 1, plan.transfer, *extras))
        key = jax.random.key(config.seed)
        for number in range(STEPS):
            batch = jax.device_put(stage.source.batch(number))
            if not number:
                recorded['gradients'] = digest(gradients(task, state.params, batch, key))
            state, metrics = step(state, batch, key)
            for name in ('loss', 'gradient_norm'):
                recorded[f'{name} of step {number}'] = float(metrics[name]).hex()
        recorded['trained parameters'] = digest(state.params)
        metrics = task.evaluate(state.evaluated_params, stage)
        recorded |= {f'held-out {name}': float(value).hex() for name, value in metrics.items()}
    return recorded


def gradients(task: Any, params: Any, batch: Any, key: Any) -> Any:
    """Return the gradients of the loss of a batch in the first step."""

    @jax.jit
    def compute(params: Any) -> Any:
        def loss(params: Any) -> Any:
            terms = task.terms(params, batch, step_key(key, 0), train=True)
            counts = {name: term.count for name, term in terms.items()}
            return averages.loss(terms, task.weights, counts)

        return jax.grad(loss)(params)

    return compute(params)


def digest(tree: Any) -> dict[str, str]:
    """Return the first digits of the SHA-256 of each array, by path."""
    arrays = {name: np.asarray(leaf) for name, leaf in tree_paths.flatten(tree).items()}
    contents = {name: f'{a.dtype}{a.shape}'.encode() + a.tobytes() for name, a in arrays.items()}
    return {name: hashlib.sha256(contents[name]).hexdigest()[:16] for name in sorted(contents)}


def differences(before: Mapping[str, Any], after: Mapping[str, Any], place: str = '') -> list[str]:
    """Return a line for each value that is missing, new or different."""
    lines = []
    for name in {**before, **after}:
        old, new = before.get(name), after.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            lines += differences(old, new, f'{place}{name}: ')
        elif old != new:
            lines.append(f'{place}{name}: {old} → {new}')
    return lines


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--output', required=True, help='file of the recording')
    parser.add_argument('--compare', default='', help='recording of another checkout')
    return parser.parse_args(argv)


def run() -> None:
    """Record all kinds of runs, and compare."""
    flags = parse()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_text(folder / 'text.txt')
        made = configs(folder)
        main.run(configs(folder)['mlm_nsp'])  # fine-tuning starts from it
        recorded = {kind: record(config) for kind, config in made.items()}
    pathlib.Path(flags.output).write_text(json.dumps(recorded, indent=1) + '\n')
    if flags.compare:
        lines = differences(json.loads(pathlib.Path(flags.compare).read_text()), recorded)
        print('\n'.join(lines) or f'{len(recorded)} kinds of runs are the same, bit for bit')
        sys.exit(bool(lines))


if __name__ == '__main__':
    run()
