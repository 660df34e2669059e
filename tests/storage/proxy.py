"""A proxy before a storage server that drops connections, answers 503, cuts answers, or counts."""

import contextlib
import http.client
import http.server
import re
import threading
import urllib.parse
from collections.abc import Callable

# What to do with a request, given its method, path and the beginning of its body: '' nothing,
# 'drop' the connection before or 'lose' it after the request took effect, 'cut' the answer, '503'.
Faults = Callable[[str], str]

_END = b'\n--==0==--'  # of an upload by gcsfs


class Proxy(http.server.ThreadingHTTPServer):
    """Forwards requests to a server on this machine.

    Attributes:
        faults: see `Faults`.
        requests: all requests so far, each as `faults` sees it.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, backend: int):
        super().__init__(('127.0.0.1', 0), _Handler)
        self.backend = backend
        self.faults: Faults = lambda request: ''
        self.requests: list[str] = []
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f'http://127.0.0.1:{self.server_port}'

    @contextlib.contextmanager
    def failing(self, faults: Faults):
        """Fail requests within a block."""
        self.faults = faults
        try:
            yield
        finally:
            self.faults = lambda request: ''

    def handle_error(self, request, client_address):
        """Clients that are killed are part of the tests."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def _serve(self):
        body = self._body()
        request = f'{self.command} {urllib.parse.unquote(self.path)} {body[:400]!r}'
        self.server.requests.append(request)
        fault = self.server.faults(request)
        if fault == '503':
            return self._answer(503, {}, b'{"error": {"code": 503, "message": "busy"}}')
        if fault == 'drop':
            return self._hang_up()
        with self.server.lock:
            if self._is_refused(body):
                return self._answer(412, {}, b'{"error": {"code": 412, "message": "exists"}}')
            status, headers, answer = self._forward(self.command, self.path, body)
        if fault == 'lose':
            return self._hang_up()
        self._answer(status, headers, answer, cut=fault == 'cut')

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_PATCH = _serve

    def _body(self) -> bytes:
        if self.headers.get('Transfer-Encoding') == 'chunked':
            body = b''
            while size := int(self.rfile.readline().split(b';')[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body
        body = self.rfile.read(int(self.headers.get('Content-Length', 0)))
        # The emulator takes a \r at the end of a file as part of the line break after it.
        return body.removesuffix(_END) + b'\r' + _END if body.endswith(_END) else body

    def _is_refused(self, body: bytes) -> bool:
        """Whether the precondition ifGenerationMatch=0 fails, which the emulator ignores."""
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        if query.get('ifGenerationMatch') != '0':
            return False
        name = query.get('name') or re.search(rb'"name": *"([^"]*)"', body)[1].decode()
        bucket = re.search('/b/([^/]*)/o', url.path)[1]
        path = f'/storage/v1/b/{bucket}/o/{urllib.parse.quote(name, safe="")}'
        return self._forward('GET', path, b'')[0] == 200

    def _forward(self, method: str, path: str, body: bytes):
        connection = http.client.HTTPConnection('127.0.0.1', self.server.backend, timeout=60)
        headers = {k: v for k, v in self.headers.items() if k.lower() != 'transfer-encoding'}
        headers['Content-Length'] = str(len(body))
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        answer = response.read()
        connection.close()
        return response.status, dict(response.getheaders()), answer

    def _answer(self, status: int, headers, body: bytes, cut: bool = False):
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ('connection', 'content-length', 'transfer-encoding'):
                self.send_header(name, value)
        length = headers.get('Content-Length', len(body)) if self.command == 'HEAD' else len(body)
        self.send_header('Content-Length', str(length))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self._hang_up()

    def _hang_up(self):
        self.close_connection = True
        self.connection.close()
