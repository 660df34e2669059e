"""The steps of the full recipes, compiled for 256 devices that are not there: what each device
would hold, and what the devices would tell each other.

    python experiments/compiled/run.py            # compares with golden.json
    python experiments/compiled/run.py --write    # renews golden.json and README.md

A change in the way that parameters or batches are cut shows as a difference. The devices are fake
CPU devices, one process a case: sizes of parameters, optimizer and exchanges are those of any
platform; temporaries, and how exchanges are merged, are those of XLA's CPU compiler.
"""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
DEVICES = 256
CASES = {  # config, stage, mesh
    'base, 128 tokens': ('base', 0, dict(data=256, fsdp=1, tensor=1)),
    'base, 512 tokens': ('base', 1, dict(data=256, fsdp=1, tensor=1)),
    'large, 128 tokens': ('large', 0, dict(data=256, fsdp=1, tensor=1)),
    'large, 128 tokens, fsdp 8': ('large', 0, dict(data=32, fsdp=8, tensor=1)),
}
MAY_VARY = 0.1  # of temporaries: they hang a little on the processor compiled for


def make_task(name: str, folder: pathlib.Path):
    """The task of a config, its text replaced by a small one with a vocabulary of full size."""
    from bert_jax.tasks.pretraining import Pretraining

    words = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
    words += [f'w{number}' for number in range(30522 - len(words))]
    (folder / 'vocab.txt').write_text('\n'.join(words) + '\n')
    documents = [f'{word}. ' + (' '.join(words[5:25]) + '. ') * 100 for word in words[25:45]]
    (folder / 'text.txt').write_text('\n\n'.join(documents))
    config = __import__(f'configs.{name}', fromlist=['get_config']).get_config()
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
    """The record of a case. To be called in a process with that many devices."""
    import flax.linen as nn
    import jax
    import numpy as np

    from bert_jax.training import compilation, optimizers, sharding
    from bert_jax.training.memory import MemoryEstimate
    from bert_jax.training.state import abstract_state
    from bert_jax.training.step import make_train_step

    name, number, sizes = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        task = make_task(name, pathlib.Path(folder))
        stage, config = task.stages[number], task.config
        one = stage.source.batch(0, np.arange(1))
    optimizer = optimizers.build(config.optimizer, lambda step: 1e-4)
    mesh = sharding.make_mesh(sizes)
    rows = sharding.batch_sharding(mesh)
    batch = {
        key: jax.ShapeDtypeStruct(
            (stage.source.batch_size, *leaf.shape[1:]), leaf.dtype, sharding=rows
        )
        for key, leaf in one.items()
    }
    with jax.set_mesh(mesh), nn.logical_axis_rules(config.sharding_rules):
        state = abstract_state(task, optimizer, mesh, config.sharding_rules)
        step = make_train_step(task, optimizer, stage.accumulation, config.seed)
        compiled = compilation.compile_step(step, state, batch)
    needs = MemoryEstimate.of(compiled, state, batch)
    exchanged = collections.defaultdict(list)
    for collective in compilation.collectives(compiled):
        exchanged[collective.kind].append(collective.bytes)
    return {
        **{key: getattr(needs, key) for key in ('parameters', 'optimizer', 'batch')},
        'temporaries': needs.temporaries,
        'exchanges': {
            kind: {'number': len(sizes), 'bytes': sum(sizes), 'largest': max(sizes)}
            for kind, sizes in sorted(exchanged.items())
        },
    }


def in_its_own_process(case: str) -> dict:
    """compile_case on fake devices."""
    flags = f'--xla_force_host_platform_device_count={DEVICES}'
    environment = os.environ | {'XLA_FLAGS': flags, 'JAX_PLATFORMS': 'cpu'}
    command = [sys.executable, __file__, '--case', case]
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT
    )
    return json.loads(done.stdout.splitlines()[-1])


def differences(golden: dict, found: dict) -> list[str]:
    """What of a case is not as recorded, a line each."""
    lines = []
    for key in sorted(golden.keys() | found.keys()):
        before, after = golden.get(key), found.get(key)
        if key == 'temporaries' and abs(after - before) <= MAY_VARY * before:
            continue
        if before != after:
            lines.append(f'{key}: {before} recorded, now {after}')
    return lines


def as_table(records: dict) -> str:
    """Markdown, sizes in MiB on each device."""
    lines = [
        '| | parameters | optimizer | batch | temporaries | exchanges |',
        '|---|---|---|---|---|---|',
    ]
    for case, record in records.items():
        sizes = [f'{record[key] / 2**20:,.1f}' for key in list(record)[:4]]
        exchanges = '; '.join(
            f'{found["number"]} {kind}, {found["bytes"] / 2**20:,.1f} in all, largest '
            f'{found["largest"] / 2**20:,.1f}'
            for kind, found in record['exchanges'].items()
        )
        lines.append(f'| {case} | {" | ".join(sizes)} | {exchanges} |')
    return '\n'.join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--write', action='store_true', help='renew golden.json and README.md')
    parser.add_argument('--case', choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        sys.path.insert(0, str(ROOT))
        print(json.dumps(compile_case(options.case)))
        return
    records = {case: in_its_own_process(case) for case in CASES}
    print(as_table(records))
    if options.write:
        (FOLDER / 'golden.json').write_text(json.dumps(records, indent=1) + '\n')
        title = f'# Steps compiled for {DEVICES} devices\n\nMiB on each device; see run.py.\n\n'
        (FOLDER / 'README.md').write_text(title + as_table(records) + '\n')
        return
    golden = json.loads((FOLDER / 'golden.json').read_text())
    changed = [
        f'{case}: {line}' for case in CASES for line in differences(golden[case], records[case])
    ]
    if changed:
        sys.exit('\n'.join(changed))


if __name__ == '__main__':
    main()
