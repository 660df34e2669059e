"""Measures the speed and memory of `bert_jax.prepare` on texts repeated to a given size.

    python experiments/benchmarks/prepare.py --texts='novels/*.txt' --megabytes=500

Prints tokens/s and CPU seconds, including the training of the vocabulary, and the peak resident
memory of the process and its workers together. Linux only.
"""

import argparse
import contextlib
import glob
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[2]


def repeat(paths: list[str], folder: pathlib.Path, size: int) -> int:
    """Copy the files repeatedly until they have `size` bytes; return the number of bytes."""
    total = number = 0
    while total < size:
        for path in paths:
            if total < size:
                copy = shutil.copy(path, folder / f'{number:06d}.txt')
                total += os.path.getsize(copy)
                number += 1
    return total


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process and its descendants; 0 if it has ended."""
    total = 0
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        total += int(pathlib.Path(f'/proc/{pid}/statm').read_text().split()[1])
        total *= os.sysconf('SC_PAGE_SIZE')
        for task in pathlib.Path(f'/proc/{pid}/task').iterdir():
            children = (task / 'children').read_text().split()
            total += sum(resident_bytes(int(child)) for child in children)
    return total


def prepare_command(folder: pathlib.Path, tokenizer: str, workers: int) -> list[str]:
    """Return the arguments of Python that prepare the texts in a folder."""
    return [
        *('-m', 'bert_jax.prepare', f'--input=text:{folder}/texts/*.txt'),
        *(f'--tokenizer={tokenizer}', f'--output={folder}/corpus', f'--workers={workers}'),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--texts', required=True, help='glob of text files')
    parser.add_argument('--megabytes', type=int, default=500, help='size of the repeated text')
    parser.add_argument('--tokenizer', default='train:wordpiece:8000', help='see bert_jax.prepare')
    parser.add_argument('--workers', type=int, default=2, help='processes that tokenize')
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / 'texts').mkdir()
        size = repeat(sorted(glob.glob(flags.texts)), folder / 'texts', flags.megabytes * 10**6)
        command = prepare_command(folder, flags.tokenizer, flags.workers)
        start, peak = time.monotonic(), 0
        process = subprocess.Popen([sys.executable, *command], cwd=ROOT)
        while process.poll() is None:
            peak = max(peak, resident_bytes(process.pid))
            time.sleep(0.1)
        seconds = time.monotonic() - start
        cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
        if process.returncode:
            sys.exit(process.returncode)
        manifest = json.loads((folder / 'corpus' / 'manifest.json').read_text())
    tokens = sum(split['tokens'] for split in manifest['splits'].values())
    print(
        f'{size / 1e6:.0f} MB, {tokens / 1e6:.1f} M tokens, {flags.workers} workers: '
        f'{seconds:.1f} s, {tokens / seconds / 1e6:.2f} M tokens/s, '
        f'CPU {cpu.ru_utime + cpu.ru_stime:.1f} s, peak {peak / 1e9:.2f} GB'
    )


if __name__ == '__main__':
    main()
