"""Compile the training steps of the full recipes for 256 simulated devices.

    python experiments/compiled/run.py            # compares with golden.json
    python experiments/compiled/run.py --write    # replaces golden.json and README.md

The records hold the memory of each device and the collectives between devices, so that an
unintended change of how parameters or batches are sharded shows up as a difference. The devices
are simulated on the CPU, one process for each case. Sizes of parameters, optimizer state and
collectives hold for any backend; temporaries and the way collectives are merged are those of XLA's
CPU compiler.
"""

import argparse
import collections
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
DEVICES = 256
CASES = {  # recipe, stage, mesh
    'base, 128 tokens': ('base', 0, dict(data=256, fsdp=1, tensor=1)),
    'base, 512 tokens': ('base', 1, dict(data=256, fsdp=1, tensor=1)),
    'large, 128 tokens': ('large', 0, dict(data=256, fsdp=1, tensor=1)),
    'large, 128 tokens, fsdp 8': ('large', 0, dict(data=32, fsdp=8, tensor=1)),
}
TOLERANCE = 0.1  # relative, for temporaries: they depend a little on the processor


def make_task(recipe: str, folder: pathlib.Path):
    """Create the task of a recipe on a small text, with a vocabulary of the full size."""
    from bert_jax.tasks.pretraining import Pretraining

    words = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
    words += [f'w{number}' for number in range(30522 - len(words))]
    (folder / 'vocab.txt').write_text('\n'.join(words) + '\n')
    documents = [f'{word}. ' + (' '.join(words[5:25]) + '. ') * 100 for word in words[25:45]]
    (folder / 'text.txt').write_text('\n\n'.join(documents))
    config = importlib.import_module(f'configs.{recipe}').get_config()
    with config.unlocked():
        config.data.sources = (f'text:{folder}/text.txt;documents=blank_line',)
        config.data.update(
            dict(
                corpus=str(folder / 'corpus'),
                tokenizer=str(folder / 'vocab.txt'),
                held_out_fraction=0.2,
                prepare_workers=0,
            )
        )
    return Pretraining(config)


def compile_case(case: str) -> dict:
    """Return the record of a case. Needs a process with 256 devices."""
    import flax.linen as nn
    import jax

    from bert_jax.training import batches, optimizers, sharding
    from bert_jax.training.memory import MemoryEstimate
    from bert_jax.training.state import abstract_state
    from bert_jax.training.step import compile_train_step, make_train_step
    from experiments.compiled import hlo

    recipe, number, sizes = CASES[case]
    mesh = sharding.make_mesh(sizes)
    with tempfile.TemporaryDirectory() as folder, jax.set_mesh(mesh):
        task = make_task(recipe, pathlib.Path(folder))
        stage, config = task.stages[number], task.config
        optimizer = optimizers.build(config.optimizer, lambda step: 1e-4)
        batch = batches.abstract(stage.source)
        with nn.logical_axis_rules(config.sharding_rules):
            state = abstract_state(task, optimizer, mesh, config.sharding_rules)
            step = make_train_step(task, optimizer, stage.accumulation)
            compiled = compile_train_step(step, state, batch, jax.random.key(config.seed))
    bytes_by_kind = collections.defaultdict(list)
    for collective in hlo.collectives(compiled):
        bytes_by_kind[collective.kind].append(collective.bytes)
    return {
        **MemoryEstimate.of(compiled, state, batch)._asdict(),
        'collectives': {
            kind: {'number': len(sizes), 'bytes': sum(sizes), 'largest': max(sizes)}
            for kind, sizes in sorted(bytes_by_kind.items())
        },
    }


def compile_in_process(case: str) -> dict:
    """Return the record of a case, compiled in a new process with simulated devices."""
    flags = f'--xla_force_host_platform_device_count={DEVICES}'
    environment = os.environ | {'XLA_FLAGS': flags, 'JAX_PLATFORMS': 'cpu'}
    command = [sys.executable, __file__, '--case', case]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT
    )
    return json.loads(done.stdout.splitlines()[-1])


def differences(golden: dict, found: dict) -> list[str]:
    """Return a line for each value of a record that is not as in golden.json."""
    lines = []
    for key in sorted(golden.keys() | found.keys()):
        before, after = golden.get(key), found.get(key)
        if key == 'temporaries' and abs(after - before) <= TOLERANCE * before:
            continue
        if before != after:
            lines.append(f'{key}: {before} recorded, now {after}')
    return lines


def as_table(records: dict) -> str:
    """Format records as a Markdown table, in MiB on each device."""
    sizes = ('parameters', 'optimizer', 'batch', 'temporaries')
    lines = [f'| | {" | ".join(sizes)} | collectives |', '|---' * 6 + '|']
    for case, record in records.items():
        cells = [f'{record[key] / 2**20:,.1f}' for key in sizes]
        collectives = '; '.join(
            f'{found["number"]} {kind}, {found["bytes"] / 2**20:,.1f} in total, largest '
            f'{found["largest"] / 2**20:,.1f}'
            for kind, found in record['collectives'].items()
        )
        lines.append(f'| {" | ".join([case, *cells, collectives])} |')
    return '\n'.join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--write', action='store_true', help='replace golden.json and README.md')
    parser.add_argument('--case', choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        sys.path.insert(0, str(ROOT))
        print(json.dumps(compile_case(options.case)))
        return
    records = {case: compile_in_process(case) for case in CASES}
    print(as_table(records))
    if options.write:
        (FOLDER / 'golden.json').write_text(json.dumps(records, indent=1) + '\n')
        title = f'# Training steps compiled for {DEVICES} devices'
        note = 'MiB on each device, as compiled and recorded by `run.py --write`.'
        (FOLDER / 'README.md').write_text(f'{title}\n\n{note}\n\n{as_table(records)}\n')
        return
    golden = json.loads((FOLDER / 'golden.json').read_text())
    changed = [
        f'{case}: {line}' for case in CASES for line in differences(golden[case], records[case])
    ]
    if changed:
        sys.exit('\n'.join(changed))


if __name__ == '__main__':
    main()
