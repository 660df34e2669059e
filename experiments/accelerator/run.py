"""The first hour on a GPU or TPU, in ten minutes: are the kernels right, and how fast is a step?

    python -m experiments.accelerator.run [--minutes=10] [--output=accelerator]

Needs jax, flax and optax, and for the comparison torch and transformers; neither TensorFlow nor
ml_collections.

1. Compares the attention kernel of the device with materialized scores, and float32 with the CPU
   (attention_check.py).
2. Measures a training step of base and large in bfloat16 at 128 and 512 tokens, and of ModernBERT
   (experiments/benchmarks): tokens/s, MFU and memory, compared with transformers in torch, as it is
   and with torch.compile. bert_jax and torch take turns on the device; torch.compile, which
   compiles longest, comes last.
3. Says by how much the memory differs from the compiler's figure for that kind of device
   (experiments/compiled/golden.json).

What the minutes do not suffice for is listed as not measured. Writes OUTPUT.json, OUTPUT.md and
OUTPUT.png.
"""

import argparse
import contextlib
import dataclasses
import importlib.util
import itertools
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / 'experiments/benchmarks'
sys.path.insert(0, str(BENCHMARKS))

import report  # noqa: E402  (a script of BENCHMARKS)

# Shape in sides.py:sequences of a step on a device, 32 as in the compiled steps.
SHAPES = (
    'base_512:32',
    'base_512_no_attention_dropout:32',
    'base:256',
    'base:32',
    'large_512:32',
    'large:32',
    'modernbert_2048:8',
)
# Shape → its compiled step, where {} is the topology.
COMPILED = {
    'base': '--recipe=base --stage=1 --topology={}',
    'base_512': '--recipe=base --stage=2 --topology={}',
    'base_512_no_attention_dropout': (
        '--recipe=base --stage=2 --topology={} --batch=32 --config.model.attention_dropout=0.0'
    ),
    'large_512': '--recipe=large --stage=2 --topology={}',
}
MEMORY = ('parameters', 'optimizer', 'batch', 'temporaries')  # of a compiled step
SIDES = ('bert_jax', 'torch_gathered', 'torch_compiled')


@dataclasses.dataclass
class Budget:
    """The time that is left until the deadline."""

    deadline: float

    @property
    def seconds(self) -> float:
        return self.deadline - time.monotonic()

    def run(self, *arguments: str) -> str:
        """Run Python in the project's folder and return its output; end it at the deadline.

        Raises:
            subprocess.SubprocessError: it failed, or the time was over.
        """
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=os.environ | {'PYTHONPATH': str(ROOT)},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=max(self.seconds, 1))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also the processes that it started
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
        return output


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--minutes', type=float, default=10)
    parser.add_argument(
        '--shapes', default=','.join(SHAPES), help='NAME:SEQUENCES, names in sides.py'
    )
    parser.add_argument('--length', type=int, default=512, help='tokens of the kernels check')
    parser.add_argument('--steps', type=int, default=10, help='timed turns of each side')
    parser.add_argument('--sides', default=','.join(SIDES), help='of sides.py')
    parser.add_argument('--output', type=pathlib.Path, default='accelerator')
    options = parser.parse_args()
    budget = Budget(time.monotonic() + 60 * options.minutes)
    result: dict[str, Any] = {'device': describe_device(budget)}
    print(f'{result["device"]}; at most {options.minutes:g} minutes', flush=True)
    result['kernels'] = check_kernels(budget, options.length)
    print(report.as_table(result['kernels']), flush=True)
    sides = options.sides.split(',')
    if not all(importlib.util.find_spec(name) for name in ('torch', 'transformers')):
        sides = [side for side in sides if not side.startswith('torch')]
        print('torch and transformers are not installed: bert_jax is measured alone', flush=True)
    result['steps'] = []
    compiled = [side for side in sides if side == 'torch_compiled']
    others = [side for side in sides if side not in compiled]
    rounds = filter(None, (others, compiled))
    for chosen, shape in itertools.product(rounds, options.shapes.split(',')):
        for record in measure(budget, *shape.split(':'), chosen, options.steps):
            result['steps'].append(record | compare_memory(record, result['device']))
            print(record, flush=True)
        print(f'{budget.seconds:.0f} s left', flush=True)
    write(options.output, result)
    wrong = [record['case'] for record in result['kernels'] if not record.get('passes', True)]
    if wrong:
        sys.exit(f'error: the attention kernel differs from materialized scores: {wrong}')


def describe_device(budget: Budget) -> str:
    """Return the kind and number of the devices, and the version of jax."""
    code = (
        'import jax; devices = jax.devices();'
        'print(len(devices), "×", devices[0].device_kind, "with jax", jax.__version__)'
    )
    return budget.run('-c', code).strip()


def check_kernels(budget: Budget, length: int) -> list[dict[str, Any]]:
    """Return a record for each case of attention_check.py."""
    module = 'experiments.accelerator.attention_check'
    records: list[dict[str, Any]] = json.loads(budget.run('-m', module, f'--length={length}'))
    return records


def measure(
    budget: Budget, shape: str, batch: str, sides: list[str], steps: int
) -> list[dict[str, Any]]:
    """Measure the steps of all sides; a reason instead for a side that fails."""
    output = pathlib.Path(f'/tmp/accelerator_{os.getpid()}_{shape}_{batch}_{sides[0]}')
    command = [
        str(BENCHMARKS / 'training_step.py'),
        f'--shape={shape}',
        f'--batch={batch}',
        f'--sides={",".join(sides)}',
        f'--steps={steps}',
        '--per_turn=5',
        f'--output={output}',
        '--dtypes=bfloat16',
    ]
    reason = 'its process ended early; see the message above'
    try:
        budget.run(*command)
    except subprocess.TimeoutExpired:
        reason = 'no time left'
    except subprocess.CalledProcessError as error:
        print(f'{shape}: exit status {error.returncode}', flush=True)
    found = output.with_suffix('.json')
    records = json.loads(found.read_text()) if found.exists() else []
    missing = set(sides) - {record['side'] for record in records}
    unknown = {'shape': shape, 'batch': int(batch), 'not_measured': reason}
    return records + [unknown | {'side': side} for side in sides if side in missing]


def compare_memory(record: dict[str, Any], device: str) -> dict[str, Any]:
    """Return the memory of a step of bert_jax as a factor of the compiler's figure, if any."""
    golden = json.loads((ROOT / 'experiments/compiled/golden.json').read_text())
    topology = 'v5p:2x2x2' if 'TPU v5' in device else 'h200:8'
    name = COMPILED.get(record['shape'], '').format(topology)
    compiled = golden.get(name) or golden.get(f'{name} --batch=32')
    is_comparable = compiled and compiled['rows'] == record['batch'] and 'peak_mib' in record
    if record['side'] != 'bert_jax' or not is_comparable:
        return {}
    expected = sum(compiled[part] for part in MEMORY)
    return {'memory_of_compiled': round(record['peak_mib'] * 2**20 / expected, 2)}


def write(output: pathlib.Path, result: dict[str, Any]) -> None:
    """Write the result as JSON, as a table and as a picture."""
    report.show(result['steps'], str(output), 'tokens_per_second', ('shape', 'batch', 'side'))
    tables = [report.as_table(result['kernels']), report.as_table(result['steps'])]
    output.with_suffix('.json').write_text(json.dumps(result, indent=1) + '\n')
    text = '\n\n'.join([result['device'], *tables])
    output.with_suffix('.md').write_text(text + '\n', encoding='utf-8')


if __name__ == '__main__':
    main()
