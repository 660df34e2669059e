"""A stand-in of the Hugging Face Hub: the HTTP requests of huggingface_hub, on this machine."""

import base64
import contextlib
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

import pytest
from huggingface_hub import constants

from bert_jax.storage import hub

_RESOLVE = re.compile(r'/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)')
_API = re.compile(r'/api/(models|datasets)/([^/]+/[^/]+)/(\w+)/?(.*)')


class Hub:
    """Repositories by kind and name: revision → path → content.

    Attributes:
        requests: the paths of all requests, for tests to look at and clear.
        faults: what goes wrong: 'cut' and 'redirect' of files, 'commit' is not a hash.
    """

    def __init__(self):
        self.repositories: dict[tuple[str, str], dict[str, dict[str, bytes]]] = {}
        self.requests: list[str] = []
        self.faults: set[str] = set()

    def add(self, kind: str, name: str, folder, revision: str = 'main') -> str:
        """Store the files of a folder as a commit; return its hash."""
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob('*'))
            if path.is_file()
        }
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        revisions = self.repositories.setdefault((kind, name), {})
        revisions[revision] = revisions[commit] = files
        return commit

    def commit_of(self, kind: str, name: str, revision: str) -> str | None:
        revisions = self.repositories.get((kind, name), {})
        files = revisions.get(revision)
        return next((own for own in revisions if len(own) == 40 and revisions[own] is files), None)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    server: '_Server'

    def do_GET(self):
        hub_, path = self.server.hub, urllib.parse.unquote(self.path.partition('?')[0])
        hub_.requests.append(path)
        if match := _RESOLVE.fullmatch(path):
            kind, name, revision, file = match.groups()
            self._send_file('datasets' if kind else 'models', name, revision, file)
            return
        match = _API.fullmatch(path)
        kind, name, what, revision = match.groups() if match else ('', '', '', '')
        commit = hub_.commit_of(kind, name, revision)
        if (kind, name) not in hub_.repositories:
            self._send(404, b'', {'X-Error-Code': 'RepoNotFound'})
        elif commit is None:
            self._send(404, b'', {'X-Error-Code': 'RevisionNotFound'})
        elif what == 'revision':
            commit = '../../elsewhere' if 'commit' in hub_.faults else commit
            self._send_json({'id': name, 'sha': commit, 'siblings': [], 'private': False})
        else:
            files = hub_.repositories[kind, name][commit].items()
            self._send_json(
                [{'type': 'file', 'path': p, 'size': len(c), 'oid': _oid(c)} for p, c in files]
            )

    do_HEAD = do_GET

    def do_POST(self):
        hub_, path = self.server.hub, self.path.partition('?')[0]
        body = self._body()
        hub_.requests.append(path)
        if self.headers.get('Authorization') != 'Bearer hf_write':
            self._send(403, b'{"error": "the token may not write"}', {})
        elif path == '/api/repos/create':
            given = json.loads(body)
            name = f'{given["organization"]}/{given["name"]}'
            hub_.repositories.setdefault(('models', name), {'main': {}})
            self._send_json({'url': f'{self.server.url}/{name}', 'id': name})
        elif path == '/api/validate-yaml':
            self._send_json({'errors': [], 'warnings': []})
        elif '/preupload/' in path:
            paths = [file['path'] for file in json.loads(body)['files']]
            modes = [{'path': p, 'uploadMode': 'regular', 'shouldIgnore': False} for p in paths]
            self._send_json({'files': modes})
        else:
            self._commit(_API.fullmatch(path)[2], body)

    def _body(self) -> bytes:
        if length := self.headers['Content-Length']:
            return self.rfile.read(int(length))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b''.join(parts)

    def _commit(self, name, body):
        lines = [json.loads(line) for line in body.splitlines()]
        files = {
            line['value']['path']: base64.b64decode(line['value']['content'])
            for line in lines
            if line['key'] == 'file'
        }
        commit = hashlib.sha1(body).hexdigest()
        self.server.hub.repositories['models', name] = {'main': files, commit: files}
        url = f'{self.server.url}/{name}/commit/{commit}'
        self._send_json({'commitUrl': url, 'commitOid': commit, 'pullRequestUrl': None})

    def _send_file(self, kind, name, revision, file):
        commit = self.server.hub.commit_of(kind, name, revision)
        content = self.server.hub.repositories[kind, name][commit][file]
        if 'redirect' in self.server.hub.faults:
            self._send(307, b'', {'Location': f'{self.server.url}{self.path}'})
            return
        if 'cut' in self.server.hub.faults and self.command == 'GET':
            self.send_response(200)
            self.send_header('Content-Length', str(len(content) + 1000))
            self.end_headers()
            self.close_connection = True
            return
        self._send(200, content, {'ETag': f'"{_oid(content)}"', 'X-Repo-Commit': commit})

    def _send_json(self, value):
        self._send(200, json.dumps(value).encode(), {'Content-Type': 'application/json'})

    def _send(self, status, content, headers):
        self.send_response(status)
        for name, value in {**headers, 'Content-Length': str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(content)

    def log_message(self, *arguments):
        pass


class _Server(http.server.ThreadingHTTPServer):
    hub: Hub

    @property
    def url(self):
        return f'http://127.0.0.1:{self.server_port}'


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@contextlib.contextmanager
def started(cache):
    """Start a Hub and yield it; this process uses it and a cache of its own."""
    server = _Server(('127.0.0.1', 0), _Handler)
    server.hub = Hub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, 'ENDPOINT', server.url)
        template = server.url + '/{repo_id}/resolve/{revision}/{filename}'
        patch.setattr(constants, 'HUGGINGFACE_CO_URL_TEMPLATE', template)
        patch.setattr(constants, 'HF_HUB_CACHE', str(cache))
        patch.setattr(constants, 'HF_HUB_OFFLINE', False)
        patch.setenv('HF_ENDPOINT', server.url)
        patch.setenv('HF_TOKEN', 'hf_write')
        try:
            yield server.hub
        finally:
            server.shutdown()
            server.server_close()
            hub.fetch.cache_clear()
