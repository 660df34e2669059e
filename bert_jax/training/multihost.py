"""Coordination of the processes of a multi-host run: joining, agreeing, ending together.

Everything here uses JAX's coordination service, which runs in process 0 ("host 0"). JAX itself ends
a process when another process is dead or the service is gone. This module adds errors: the error
that ends one process is published, so that every process prints it and exits with the same status
instead of waiting in a collective.
"""

import contextlib
import itertools
import json
import math
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import distributed
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from bert_jax.errors import UserError, report
from bert_jax.training import interruption, runtime
from bert_jax.training.interruption import RESTART
from bert_jax.types import Tree

Result = TypeVar('Result')  # can be written as JSON

JOIN_TIMEOUT = 240  # seconds until all processes must have joined

# Seconds without a heartbeat after which JAX declares a process dead and ends all others. The
# service checks about twice per timeout, so a dead host ends the run within 90 s (with JAX's
# default of 100 s: 150 s). The heartbeats come from a C++ thread: only a network outage or a paused
# machine delays them, not a long compilation or a busy interpreter.
HEARTBEAT_TIMEOUT = 60
EXIT_TIMEOUT = 10  # seconds that processes wait for each other when all of them exit

_POLL_INTERVAL = 1.0  # seconds between looks for the error of another process
_SIGNS = 12  # signs of life within HEARTBEAT_TIMEOUT; a host is silent if it misses four
_WAIT_SLICE = 5000  # milliseconds of one blocking call; Python handles signals between the calls
_ERROR_KEY = 'bert_jax/error'
_ALIVE_KEY = 'bert_jax/alive'


@contextlib.contextmanager
def joined(
    coordinator: str | None = None, num_processes: int | None = None, process_id: int | None = None
) -> Iterator[None]:
    """Join the processes of a run for the duration of the block.

    If the block raises in any process, every process prints the error and exits: with status 2
    after a UserError, with RESTART after a signal, with 1 otherwise. If a process dies, JAX aborts
    the others (see HEARTBEAT_TIMEOUT).

    Args:
        coordinator: HOST:PORT of process 0. By default all arguments come from the environment (TPU
            pod, Slurm, Open MPI).
        num_processes: number of processes of the run.
        process_id: index of this process.

    Raises:
        UserError: the processes cannot find each other.
    """
    _initialize(coordinator, num_processes, process_id)
    run_ended = threading.Event()
    peers = _Peers()
    peers.exchange('')  # before the run starts, so that a host that hangs has given its name
    watcher = threading.Thread(target=_watch_for_error, args=(peers, run_ended), daemon=True)
    watcher.start()
    interruption.tell_before_exit(lambda text: _end(RESTART, text))
    try:
        yield
        _leave(run_ended, watcher)
    except SystemExit:  # on all processes, after they agreed to exit
        _leave(run_ended, watcher)
        raise
    except UserError as error:
        _end(2, str(error))
    except BaseException as error:
        traceback.print_exc()
        _end(1, f'{type(error).__name__}: {" ".join(str(error).split())[:300]}')


def run_on_host0(function: Callable[[], Result]) -> Result:
    """Call `function` on host 0 only and return its JSON-serializable result on every host.

    The other hosts wait for as long as the call takes, hours if necessary. All hosts must call this
    in the same order. An exception in `function` ends the run on all hosts.
    """
    if not jax.distributed.is_initialized():
        return function()
    key = f'bert_jax/result/{next(_call_numbers)}'
    if jax.process_index() == 0:
        _client().key_value_set(key, json.dumps(function()))
    result: Result = json.loads(_wait_for(key))
    return result


def barrier() -> None:
    """Wait until all hosts are here, without a time limit (collectives time out)."""
    if not jax.distributed.is_initialized():
        return
    key = f'bert_jax/barrier/{next(_call_numbers)}'
    _client().key_value_set(f'{key}/{jax.process_index()}', 'reached')
    run_on_host0(lambda: [_wait_for(f'{key}/{host}') for host in range(jax.process_count())])


def gather_on_host0(name: str, value: Result) -> list[Result]:
    """Return on host 0 the JSON-serializable values of all hosts, in their order; [] on others.

    Host 0 waits until all hosts have called this. Unlike the functions above, any thread may.

    Args:
        name: identifies the call, the same on all hosts.
        value: the value of this host.
    """
    keys = [f'bert_jax/gathered/{name}/{host}' for host in range(jax.process_count())]
    _client().key_value_set(keys[jax.process_index()], json.dumps(value))
    if jax.process_index() != 0:
        return []
    return [json.loads(_wait_for(key)) for key in keys]


def check_same(what: str, make_value: Callable[[], str]) -> None:
    """Raise UserError on every host whose value differs from the value of host 0.

    Args:
        what: name of the value in the message.
        make_value: computes the value, such as a digest; called only if there are several hosts.
    """
    if not jax.distributed.is_initialized():
        return
    value = make_value()
    if value != run_on_host0(lambda: value):
        raise UserError(
            f'the {what} of host {jax.process_index()} differs from that of host 0: start all '
            'hosts with the same command, on storage that all of them share'
        )
    barrier()  # a host that continued could fail with an error that hides this one


def largest(number: int) -> jax.Array:
    """Compute the maximum of `number` over all hosts, as an int32 scalar.

    A collective on the current mesh: all hosts must call it at the same point. The result may
    still be in flight when the function returns.
    """
    mesh = jax.sharding.get_mesh()
    one_per_device = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    numbers = jax.make_array_from_callback(
        (mesh.size,), one_per_device, lambda _: np.array([number], np.int32)
    )
    largest: jax.Array = jax.jit(jnp.max)(numbers)
    return largest


def fetch(tree: Tree) -> Tree:
    """Return a tree of global arrays with all their values on this host.

    A collective: all hosts must call it at the same point.
    """
    if jax.process_count() == 1:
        return tree
    return multihost_utils.process_allgather(tree, tiled=True)


_call_numbers = itertools.count()  # the same on all hosts: part of the keys of collective calls
_exit_lock = threading.Lock()  # held by the first thread that ends this process


def _client() -> Any:
    """The client of JAX's coordination service.

    Private in JAX 0.10, whose `multihost_utils` has only collectives between devices, which time
    out after 30 s on CPU and block a host that has to stop.
    """
    return distributed.global_state.client


def _initialize(coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    # JAX's own handler of SIGTERM would replace the handler of the training loop.
    jax.config.update('jax_enable_preemption_service', False)
    # Open MPI 5 sets these variables, but no longer the variables by which JAX recognizes Open MPI.
    if num_processes is None and 'OMPI_COMM_WORLD_SIZE' in os.environ:
        num_processes = int(os.environ['OMPI_COMM_WORLD_SIZE'])
    if process_id is None and 'OMPI_COMM_WORLD_RANK' in os.environ:
        process_id = int(os.environ['OMPI_COMM_WORLD_RANK'])
    # If a process is missing, JAX aborts with a C++ stack trace after 300 s.
    alarm = threading.Timer(JOIN_TIMEOUT, _give_up, (coordinator,))
    alarm.start()
    try:
        jax.distributed.initialize(
            coordinator,
            num_processes,
            process_id,
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT,
            shutdown_timeout_seconds=HEARTBEAT_TIMEOUT,
        )
    except (RuntimeError, TypeError, ValueError) as error:
        raise UserError(
            f'the processes of the run did not find each other ({" ".join(str(error).split())}); '
            'start them with --distributed on a TPU pod, under Slurm or mpirun, or give each '
            '--coordinator=HOST:PORT --num_processes=N --process_id=I'
        ) from error
    finally:
        alarm.cancel()
    runtime.find_devices()  # the hosts exchange their lists now, while all of them are here


def _give_up(coordinator: str | None) -> NoReturn:
    at = f' at {coordinator}' if coordinator else ''
    _print_error(
        f'not all processes of the run joined{at} within {JOIN_TIMEOUT} s; check that all of them '
        'were started and can reach process 0, then start all of them again'
    )
    os._exit(RESTART)


def _wait_for(key: str) -> str:
    """Wait for a key of the service, without a time limit."""
    while True:
        try:
            return str(_client().blocking_key_value_get(key, _WAIT_SLICE))
        except jax.errors.JaxRuntimeError as error:
            if 'DEADLINE_EXCEEDED' not in str(error):
                raise


def _watch_for_error(peers: '_Peers', run_ended: threading.Event) -> None:
    """Until the run has ended, exit if another process publishes an error; runs in a thread.

    A process that dies publishes nothing: it is named before JAX ends the others.
    """
    polls_per_sign = math.ceil(HEARTBEAT_TIMEOUT / _SIGNS / _POLL_INTERVAL)
    for number in itertools.count():
        if number % polls_per_sign == 0:
            for line in peers.exchange(str(number)):
                report(line)
        if run_ended.wait(_POLL_INTERVAL):
            return
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # the key does not exist
            status, message = json.loads(_client().key_value_try_get(_ERROR_KEY))
            _end(status, message, is_own=False)


class _Peers:
    """Signs of life of all hosts, which name a host whose process has died."""

    def __init__(self) -> None:
        now = time.monotonic()
        # Host → its last sign and when it came.
        self._last = {str(host): ('', now) for host in range(jax.process_count())}
        self._silent: set[str] = set()

    def exchange(self, sign: str) -> list[str]:
        """Give a sign of this host; return a line for each host that has become silent."""
        try:
            own = f'{_ALIVE_KEY}/{jax.process_index()}'
            _client().key_value_set(own, f'{sign} {socket.gethostname()}', allow_overwrite=True)
            signs = dict(_client().key_value_dir_get(_ALIVE_KEY))
        except jax.errors.JaxRuntimeError:  # host 0, which runs the service, is gone
            signs = {}
        now = time.monotonic()
        for key, value in signs.items():
            host = key.rpartition('/')[2]
            if self._last[host][0] != value:
                self._last[host] = value, now
                self._silent.discard(host)
        wait = HEARTBEAT_TIMEOUT * 4 / _SIGNS
        silent = {host for host, (_, time_) in self._last.items() if now - time_ > wait}
        if '0' in silent:  # then nobody can give a sign
            silent = {'0'}
        lines = [
            f'host {host} ({self._last[host][0].partition(" ")[2]}) has not answered for '
            f'{wait:.0f} s; if it has died, all hosts end soon: rerun the same command to resume'
            for host in sorted(silent - self._silent)
        ]
        self._silent |= silent
        return lines


def _end(status: int, message: str, is_own: bool = True) -> NoReturn:
    """Print an error, publish it if it arose in this process, and exit together with the others."""
    with _exit_lock:
        _print_error(message)
        if is_own:
            name = f'host {jax.process_index()} ({socket.gethostname()})'
            error = json.dumps([status, f'{name} stopped: {message}'])
            with contextlib.suppress(jax.errors.JaxRuntimeError):  # another process was faster
                _client().key_value_set(_ERROR_KEY, error)
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # a process does not answer
            _client().wait_at_barrier(_ERROR_KEY, EXIT_TIMEOUT * 1000)
        if jax.process_index() == 0:
            time.sleep(1)  # JAX aborts processes that still run when host 0 and the service end
        os._exit(status)  # cleaning up could wait for a process that is gone


def _print_error(message: str) -> None:
    sys.stdout.flush()
    report(f'\nerror: {message}')


def _leave(run_ended: threading.Event, watcher: threading.Thread) -> None:
    """Leave the run once all processes have finished: another one may still be writing."""
    barrier()
    run_ended.set()
    watcher.join()
    jax.distributed.shutdown()
