"""Several processes, on one host each or not, as one run: how they start, agree, and stop together.

Beside what JAX does between them, host 0 (process 0) keeps a line to every other one. Over it host
0 passes on what it alone found out or did, and whoever stops says so. The system closes a dead
process' line at once, and a host that hangs or was cut off falls silent, so the others stop with a
message instead of waiting in a collective for ever.
"""

import contextlib
import ctypes
import json
import os
import queue
import secrets
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax._src import distributed
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

from bert_jax.errors import UserError

RESTART = 75  # exit status: saved or lost nothing, run the same command again (EX_TEMPFAIL)
BEAT = 5.0  # seconds between signs of life
SILENCE = 40.0  # seconds without one until a host counts as dead
JOINING = 240.0  # seconds until all must have come
PATIENCE = 5.0  # seconds in which a death must be noticed that made a collective fail


class Place(NamedTuple):
    """Where a process finds the others; what is None comes from the environment."""

    coordinator: str | None = None  # HOST:PORT of process 0
    num_processes: int | None = None
    process_id: int | None = None


@contextlib.contextmanager
def joined(place: Place):
    """Joins the processes of a run for the duration of the block.

    If the block raises, here or elsewhere, every process prints why and ends: with status 2 after
    a UserError, RESTART if a process died, 1 otherwise. Raises UserError if they do not find each
    other.
    """
    global _link
    _initialize(place)
    _link = _connect()
    _delay_aborts()
    try:
        yield
    except SystemExit:
        raise
    except UserError as error:
        _link.end(str(error), 2)
    except BaseException as error:
        time.sleep(PATIENCE)
        traceback.print_exc()
        _link.end(f'{type(error).__name__}: {" ".join(str(error).split())[:300]}', 1)
    finally:
        _link.leave()
        _link = None
        jax.distributed.shutdown()


def run_on_host0(function: Callable[[], Any]) -> Any:
    """What `function` returns on host 0, where alone it is called; JSON-able. The others wait, for
    hours if need be. An error there ends them all.
    """
    if _link is None:
        return function()
    if jax.process_index():
        return json.loads(_link.inbox.get())
    value = json.dumps(function())
    _link.send(f'value {value}')
    return json.loads(value)


def barrier():
    """Returns once all hosts are here, however long that takes; collectives wait half a minute."""
    if _link is None:
        return
    if jax.process_index():
        _link.send('here')
    else:
        _link.await_all()
    run_on_host0(lambda: None)


def check_same(what: str, value: str):
    """Raises UserError if a host has another value than host 0."""
    first = run_on_host0(lambda: value)
    if value != first:
        raise UserError(
            f'host {jax.process_index()} has another {what} than host 0: start all with the same '
            'command, on folders that all of them see'
        )


def largest(number: int) -> jax.Array:
    """The largest of the hosts' numbers, int32, on its way: all must call it at the same point."""
    mesh = jax.sharding.get_mesh()
    one_a_device = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    numbers = jax.make_array_from_callback(
        (mesh.size,), one_a_device, lambda index: np.full(mesh.size, number, np.int32)[index]
    )
    return _max(numbers)


def fetch(tree):
    """A tree of global arrays with which this host can compute alone; all hosts must ask for it at
    the same point.
    """
    if jax.process_count() == 1:
        return tree
    return multihost_utils.process_allgather(tree, tiled=True)


_max = jax.jit(lambda numbers: numbers.max())
_link: '_Link | None' = None


def _initialize(place: Place):
    # JAX' own answer to SIGTERM would take the place of the loop's.
    jax.config.update('jax_enable_preemption_service', False)
    place = Place(
        *(given if given is not None else env for given, env in zip(place, _mpi(), strict=True))
    )
    # Where one does not come, JAX aborts with a stack trace after 300 s.
    alarm = threading.Timer(JOINING, _give_up, args=(place,))
    alarm.start()
    try:
        jax.distributed.initialize(*place)
    except (RuntimeError, TypeError, ValueError) as error:
        raise UserError(
            f'the processes of the run did not find each other ({" ".join(str(error).split())}); '
            'start them by TPU, Slurm or mpirun with --distributed, or give each '
            '--coordinator=HOST:PORT --num_processes=N --process_id=I'
        ) from error
    finally:
        alarm.cancel()


def _give_up(place: Place):
    where = f' at {place.coordinator}' if place.coordinator else ''
    print(
        f'error: not all processes of the run have met{where} within {JOINING:.0f} s; see whether '
        'all were started and reach process 0, then start all again',
        file=sys.stderr,
        flush=True,
    )
    os._exit(RESTART)


def _mpi() -> Place:
    """Open MPI 5 sets these, but no longer what JAX knows Open MPI by."""
    size, rank = (os.environ.get(f'OMPI_COMM_WORLD_{name}') for name in ('SIZE', 'RANK'))
    return Place(None, size and int(size), rank and int(rank))


def _connect() -> '_Link':
    """Host 0 listens; the others learn where, and a secret, through their devices."""
    process, count = jax.process_index(), jax.process_count()
    server = None
    if process == 0:
        server = socket.create_server(
            ('', 0),
            family=socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET,
            dualstack_ipv6=socket.has_dualstack_ipv6(),
            backlog=count,
        )
    port = server.getsockname()[1] if server else 0
    numbers = np.array([port, secrets.randbits(31)], np.int32)
    port, secret = map(int, multihost_utils.broadcast_one_to_all(numbers))
    if server:
        with server:
            return _Link(_accept(server, count - 1, str(secret)))
    host = distributed.global_state.coordinator_address.rpartition(':')[0].strip('[]')
    connection = socket.create_connection((host, port), timeout=SILENCE)
    connection.sendall(f'{secret} {process} {socket.gethostname()}\n'.encode())
    return _Link({f'host 0 ({host})': (connection, connection.makefile())})


def _accept(server: socket.socket, number: int, secret: str) -> dict[str, tuple]:
    """The connections of so many processes, each with the file to read it by, by their names."""
    connections = {}
    server.settimeout(SILENCE)
    while len(connections) < number:
        connection, _ = server.accept()
        connection.settimeout(SILENCE)
        lines = connection.makefile()
        hello = lines.readline().split()
        if len(hello) == 3 and hello[0] == secret:
            connections[f'host {hello[1]} ({hello[2]})'] = connection, lines
    return connections


def _delay_aborts():
    """JAX aborts who loses the coordinator, at once and from a thread without Python. Where Python
    is busy in another thread, the one that listens to host 0 comes too late to say why, unless an
    abort sleeps first. The handler must be C; it sleeps as many seconds as the signal's number, 6.
    """
    libc = ctypes.CDLL(None)
    libc.signal(int(signal.SIGABRT), libc.sleep)


class _Link:
    """One process' lines: host 0 has one to each other, each other one has one to host 0."""

    def __init__(self, connections: dict[str, tuple]):
        self.inbox = queue.Queue()  # what host 0 passed on
        self._here = threading.Semaphore(0)  # how many have come to a meeting
        self._connections = connections
        self._sending, self._ending = threading.Lock(), threading.Lock()
        for name, (_, lines) in connections.items():
            threading.Thread(target=self._listen, args=(name, lines), daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()

    def send(self, line: str):
        """Sends one line to all at the other ends; who cannot be reached is found by listening."""
        with self._sending:
            for connection, _ in self._connections.values():
                with contextlib.suppress(OSError):
                    connection.sendall(f'{line}\n'.encode())

    def await_all(self):
        """Returns once each at the other ends has said that it is here."""
        for _ in self._connections:
            self._here.acquire()

    def end(self, reason: str, status: int, by_other: bool = False):
        """Ends this process, and all others, saying why. Does not return: nothing here may wait for
        a process that is gone.
        """
        with self._ending:
            message = reason if by_other else f'host {jax.process_index()} stopped: {reason}'
            self.send(f'stop {status} {message}')
            print(f'\nerror: {reason}', file=sys.stderr, flush=True)
            sys.stdout.flush()
            if jax.process_index() == 0:
                time.sleep(1)  # for the others to read it: a line closed at once may lose it
            os._exit(status)

    def leave(self):
        """Says that this process ends well."""
        self.send('bye')

    def _beat(self):
        while True:
            time.sleep(BEAT)
            self.send('alive')

    def _listen(self, name: str, lines):
        why = 'died'
        try:
            with contextlib.suppress(ConnectionError):  # as good as closed
                for line in lines:
                    kind, _, rest = line.rstrip('\n').partition(' ')
                    if kind == 'value':
                        self.inbox.put(rest)
                    elif kind == 'here':
                        self._here.release()
                    elif kind == 'stop':
                        status, _, message = rest.partition(' ')
                        self.end(message, int(status), by_other=True)
                    elif kind == 'bye':
                        why = None
        except TimeoutError:
            why = f'has been silent for {SILENCE:.0f} s'
        if why:
            message = f'{name} {why}; start all again, to go on from the last checkpoint'
            self.end(message, RESTART, by_other=True)
