"""An archive over HTTP on the loopback: the resolver function behind an HTTP API, and an object server that can fail.

The object server grants what its URLs say, as S3 does with presigned ones: one range, named by the `Range` header,
until they expire. `faults` says what goes wrong with which GET.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.parse import parse_qs, quote, unquote, urlsplit

from coldstream.local.http_api import HttpApi
from coldstream.resolve.resolver import Resolver
from coldstream.runtime import resolving
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import ManifestTable
from coldstream.units import ByteRange
from functions.resolver import app

CONTEXT = SimpleNamespace(
    function_name="resolver",
    memory_limit_in_mb=512,
    invoked_function_arn="arn:aws:lambda:eu-central-1:000000000000:function:resolver",
    aws_request_id="1f0c6a52-8b53-4f8c-9a55-1d6a38a4d6f1",
)


@dataclass(frozen=True)
class Get:
    """A GET that the object server has got: the how-manieth, of what."""

    number: int
    key: str
    first_byte: int


@dataclass(frozen=True)
class Fault:
    """What goes wrong: another status; a body that ends early or has a bit flipped; or nothing comes for a while.

    With `trickle_s`, a byte of the body comes each time.
    """

    status: int | None = None
    body: bytes = b"<Error/>"
    keep_bytes: int | None = None
    flip_at: int | None = None
    stall_s: float = 0
    trickle_s: float = 0


class HttpObjects(MemoryObjects):
    """Objects in memory, whose URLs lead to a server."""

    def __init__(self) -> None:
        super().__init__()
        self.base_url = ""
        self.signed = 0

    def presign_get(self, key: str, byte_range: ByteRange, *, expires_s: int) -> str:
        with self._lock:
            self.signed += 1
        return f"{self.base_url}/{quote(key)}?range={quote(byte_range.http)}&expires={time.time() + expires_s}"


class ObjectServer(ThreadingHTTPServer):
    """Serves the ranges that URLs grant. `gets` are those it has got."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, objects: HttpObjects) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects = objects
        self.faults: Callable[[Get], Fault | None] = lambda _: None
        self.gets: list[Get] = []
        self.lock = threading.Lock()
        self.got_one = threading.Event()
        self.stop = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: connections that break off are what is tried here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ObjectServer

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        key, query = unquote(parts.path[1:]), parse_qs(parts.query)
        wanted = query["range"][0]
        first, last = (int(number) for number in wanted.removeprefix("bytes=").split("-"))
        with self.server.lock:
            get = Get(len(self.server.gets), key, first)
            self.server.gets.append(get)
        self.server.got_one.set()
        fault = self.server.faults(get) or Fault()
        if fault.stall_s:
            self.server.stop.wait(fault.stall_s)
        if fault.status is not None:
            self._answer(fault.status, fault.body)
        elif self.headers.get("Range") != wanted or float(query["expires"][0]) < time.time():
            self._answer(403, b"<Error/>")
        elif key not in self.server.objects.objects:
            self._answer(404, b"<Error/>")
        else:
            whole = self.server.objects.objects[key]
            body = bytearray(whole[first : last + 1])
            if fault.flip_at is not None:
                body[fault.flip_at] ^= 1
            place = f"bytes {first}-{first + len(body) - 1}/{len(whole)}"
            self._answer(206, bytes(body), fault.keep_bytes, place, fault.trickle_s)

    def _answer(
        self,
        status: int,
        body: bytes,
        keep_bytes: int | None = None,
        place: str | None = None,
        trickle_s: float = 0,
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if place is not None:
            self.send_header("Content-Range", place)
            self.send_header("ETag", '"made"')
        self.end_headers()
        if trickle_s:
            for number in range(len(body)):
                self.wfile.write(body[number : number + 1])
                self.server.stop.wait(trickle_s)
        else:
            self.wfile.write(body[:keep_bytes])
        if keep_bytes is not None:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in http.server
        """Say nothing."""


@dataclass
class HttpArchive:
    """Where the resolver is, and the object server."""

    url: str
    objects: ObjectServer
    asked: list[str]


@contextmanager
def object_server(objects: HttpObjects) -> Iterator[ObjectServer]:
    """Serve objects alone while the context lasts."""
    server = ObjectServer(objects)
    objects.base_url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.stop.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def http_archive(table: ManifestTable, objects: HttpObjects, *, url_expiry_s: int = 3600) -> Iterator[HttpArchive]:
    """Serve an archive while the context lasts."""
    server = ObjectServer(objects)
    objects.base_url = f"http://127.0.0.1:{server.server_address[1]}"
    resolver = Resolver(table, objects, url_expiry_s=url_expiry_s)
    asked: list[str] = []
    lock = threading.Lock()
    before = resolving.resolver

    def invoke(event: dict[str, object]) -> object:
        with lock:
            asked.append(f"{event['rawPath']}?{event['rawQueryString']}")
            return app.lambda_handler(event, CONTEXT)

    api = HttpApi(0, function="resolver", invoke=invoke, report=lambda _: None)
    threads = [threading.Thread(target=each.serve_forever, args=(0.01,)) for each in (api, server)]
    for thread in threads:
        thread.start()
    resolving.resolver = lambda: resolver
    try:
        yield HttpArchive(api.url, server, asked)
    finally:
        resolving.resolver = before
        server.stop.set()
        for each in (api, server):
            each.shutdown()
            each.server_close()
        for thread in threads:
            thread.join()
