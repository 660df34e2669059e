"""Real servers of gs:// and s3://, each a process of its own behind a proxy."""

import contextlib
import socket
import subprocess
import sys
import time

import pytest

from tests.storage.proxy import Proxy

BUCKET = 'bert'
_CREDENTIALS = {
    'AWS_ACCESS_KEY_ID': 'test',
    'AWS_SECRET_ACCESS_KEY': 'test',
    'AWS_DEFAULT_REGION': 'us-east-1',
    'NO_GCE_CHECK': 'true',
}
# Scheme → packages, module and arguments of the server, and the variable with its address.
_SERVERS = {
    'gs': (
        ('gcsfs', 'gcp_storage_emulator'),
        ['gcp_storage_emulator', 'start', '--in-memory', f'--default-bucket={BUCKET}'],
        '--host=127.0.0.1 --port={port}',
        'STORAGE_EMULATOR_HOST',
    ),
    's3': (
        ('s3fs', 'moto', 'flask'),
        ['moto.server'],
        '-H 127.0.0.1 -p {port}',
        'AWS_ENDPOINT_URL',
    ),
}


@contextlib.contextmanager
def started(scheme: str):
    """Start the server of a scheme and yield its proxy; this and later processes use it.

    Skips the test if a package is missing.
    """
    packages, command, address, variable = _SERVERS[scheme]
    for package in packages:
        pytest.importorskip(package, reason=f'{package} is not installed (extra test-buckets)')
    port = _free_port()
    process = subprocess.Popen(
        [sys.executable, '-m', *command, *address.format(port=port).split()],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    proxy = Proxy(port)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**_CREDENTIALS, variable: proxy.url}.items():
            patch.setenv(name, value)
        try:
            _wait(port)
            file_system = _file_system(scheme)
            if scheme == 's3':
                file_system.mkdir(BUCKET)
            yield proxy
        finally:
            proxy.shutdown()
            process.kill()
            process.wait()


def _file_system(scheme: str):
    """The file system of this process, opened anew: the address of the server has changed."""
    from bert_jax.storage import bucket

    bucket._file_system.cache_clear()
    import fsspec

    fsspec.get_filesystem_class(scheme).clear_instance_cache()
    return bucket._file_system(scheme)


def _wait(port: int):
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(('127.0.0.1', port)):
            return
        time.sleep(0.05)
    raise TimeoutError(f'no server on port {port}')


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        return found.getsockname()[1]
