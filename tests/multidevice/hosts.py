"""Starts and awaits the processes of a run on several hosts."""

import contextlib
import os
import random
import socket
from unittest import mock

from tests.end_to_end import small

FIRST_SLURM_PORT = 2**16 - 2**12  # JAX derives the port of a Slurm job from its number


def start(folder, *arguments, num_hosts=2, devices=4, by='flags'):
    """Start the processes of a run, each with so many fake devices.

    by: how the processes learn of each other, if there is more than one.
    """
    small.write_text(folder)
    port, processes = free_port(), []
    for host in range(num_hosts):
        flags, environment = addressing(by, port, num_hosts, host) if num_hosts > 1 else ([], {})
        with mock.patch.dict(os.environ, environment):
            xla_flags = f'--xla_force_host_platform_device_count={devices}'
            processes.append(small.start(folder, *arguments, *flags, xla_flags=xla_flags))
    return processes


def addressing(by: str, port: int, num_hosts: int, host: int) -> tuple[list[str], dict[str, str]]:
    """The flags and the environment variables by which one process finds the others."""
    coordinator = f'--coordinator=localhost:{port}'
    if by == 'mpi':
        size, rank = (f'OMPI_COMM_WORLD_{name}' for name in ('SIZE', 'RANK'))
        return [coordinator], {size: str(num_hosts), rank: str(host)}
    if by == 'slurm':
        return ['--distributed'], {
            'SLURM_JOB_ID': str(port - FIRST_SLURM_PORT),
            'SLURM_STEP_NODELIST': 'localhost',
            'SLURM_NTASKS': str(num_hosts),
            'SLURM_PROCID': str(host),
            'SLURM_LOCALID': str(host),
        }
    return [coordinator, f'--num_processes={num_hosts}', f'--process_id={host}'], {}


def free_port() -> int:
    """A free port among those that JAX uses for Slurm jobs."""
    for port in random.sample(range(FIRST_SLURM_PORT, 2**16), 100):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(('localhost', port))
            return port
    raise AssertionError('no port is free')


def finish(processes, timeout=240) -> tuple[list[int], list[str]]:
    """Wait for processes; return their exit statuses and stderrs."""
    stderrs = [process.communicate(timeout)[1] for process in processes]
    return [process.returncode for process in processes], stderrs
