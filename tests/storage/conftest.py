"""Servers of buckets for the tests of this folder."""

import itertools

import pytest

from bert_jax.storage import bucket, paths
from tests.storage import servers

_numbers = itertools.count()


@pytest.fixture(scope='session', params=['gs', 's3'])
def server(request):
    """The proxy before the server of each kind; `server.scheme` tells which."""
    with servers.started(request.param) as proxy:
        proxy.scheme = request.param
        yield proxy


@pytest.fixture
def root(server):
    """An empty folder in a bucket."""
    return paths.path(f'{server.scheme}://{servers.BUCKET}/test-{next(_numbers)}')


@pytest.fixture
def no_waiting(monkeypatch):
    """Requests are repeated without pauses, by this project and by the packages it uses."""
    import asyncio

    sleep = asyncio.sleep
    monkeypatch.setattr(asyncio, 'sleep', lambda seconds, *more: sleep(min(seconds, 0.01), *more))
    monkeypatch.setattr(bucket, '_FIRST_WAIT', 0.01)
    monkeypatch.setattr(bucket, '_LONGEST_WAIT', 0.01)
