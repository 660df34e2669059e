"""Compiles a training step for TPUs or GPUs with their real compilers, without the hardware.

    python -m experiments.compiled.run --recipe=base --topology=v5p:2x2x2 [--stage=2]
        [--batch=32] [--mesh=data=4,fsdp=2] [--kernel=flash] [--config.KEY=VALUE …]
    python -m experiments.compiled.run --check

`pip install -e ".[tpu]"` and `pip install -e ".[cuda12]"` install the compilers. Compiling a step
of a base model takes one to three minutes on two cores.
"""

import argparse
import json
import pathlib
import shlex
import subprocess
import sys

from bert_jax.errors import UserError, exit_cleanly
from experiments.compiled import report, topology

FOLDER = pathlib.Path(__file__).resolve().parent
GOLDEN, RESULTS = FOLDER / 'golden.json', FOLDER.parents[1] / 'docs/results.md'


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse a command line; `overrides` are flags of bert_jax.main."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--recipe', default='base', help='NAME or NAME:PARAMETER in configs/')
    parser.add_argument('--topology', default='v5p:2x2x2', help=f'of {", ".join(topology.CHIPS)}')
    parser.add_argument('--stage', type=int, default=1, help='number of the stage, from 1')
    parser.add_argument(
        '--batch', type=int, help='sequences of a micro-batch on each device; default: the recipe'
    )
    parser.add_argument('--mesh', help='devices per axis: data=4,fsdp=2')
    parser.add_argument('--kernel', help='compute.attention_kernel')
    parser.add_argument(
        '--cublas', action='store_true', help='GPU: leave all matrix products to cuBLAS'
    )
    parser.add_argument('--json', action='store_true', help='print the record as JSON')
    parser.add_argument('--record', action='store_true', help=f'store the record in {GOLDEN.name}')
    parser.add_argument(
        '--check', action='store_true', help=f'compile all of {GOLDEN.name} again and compare'
    )
    options, options.overrides = parser.parse_known_args(argv)
    return options


def overrides(options: argparse.Namespace) -> list[str]:
    """Return the flags of bert_jax.main that a command asks for."""
    name, colon, parameter = options.recipe.partition(':')
    flags = [f'--config=configs/{name}.py{colon}{parameter}', *options.overrides]
    if options.mesh:
        sizes = dict(data='1', fsdp='1', tensor='1')
        for pair in options.mesh.split(','):
            axis, _, size = pair.partition('=')
            if axis not in sizes or not size.isdecimal():
                raise UserError(f'--mesh={options.mesh} is not valid; write data=4,fsdp=2')
            sizes[axis] = size
        flags += [f'--config.mesh.{axis}={size}' for axis, size in sizes.items()]
    if options.kernel:
        flags.append(f'--config.compute.attention_kernel={options.kernel}')
    return flags


def compile_command(argv: list[str]) -> dict:
    """Compile the step of a command line in this process and return the record."""
    options = parse(argv)
    target = topology.parse(options.topology)
    topology.configure(target, options.cublas)
    from bert_jax.cli import command_line

    config = command_line.parse(['run', *overrides(options)], __doc__).config
    from experiments.compiled.step import compile_step

    return compile_step(config, target, options.stage, options.batch)


def compile_in_process(command: str) -> dict:
    """Compile a command line of golden.json in a new process and return the record."""
    argv = [sys.executable, '-m', 'experiments.compiled.run', '--json', *shlex.split(command)]
    output = subprocess.check_output(argv, text=True, cwd=FOLDER.parents[1])
    return json.loads(output.splitlines()[-1])


def check() -> None:
    """Compile all recorded commands again. Raises UserError if a record differs."""
    lines = []
    for command, golden in json.loads(GOLDEN.read_text()).items():
        differences = report.differences(golden, compile_in_process(command))
        lines += [f'{command}: {line}' for line in differences]
    if lines:
        raise UserError('\n'.join(lines))


def write(records: dict[str, dict]) -> None:
    """Add records to golden.json, and update the table at the end of docs/results.md."""
    golden = dict(sorted((json.loads(GOLDEN.read_text()) | records).items()))
    GOLDEN.write_text(json.dumps(golden, indent=1) + '\n')
    text, title, _ = RESULTS.read_text().partition(report.TITLE)
    RESULTS.write_text(text + title + report.table(golden).removeprefix(title))


@exit_cleanly
def main(argv: list[str] | None = None) -> None:
    """Run a command line, sys.argv by default."""
    argv = sys.argv[1:] if argv is None else argv
    options = parse(argv)
    if options.check:
        check()
        return
    record = compile_command(argv)
    print(json.dumps(record) if options.json else report.describe(record))
    if options.record:
        record.pop('traffic', None)
        command = shlex.join(flag for flag in argv if flag not in ('--record', '--json'))
        write({command: record})


if __name__ == '__main__':
    main()
