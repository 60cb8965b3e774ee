"""AWS without sockets: connections of this process lead to an emulated AWS, and a test says what goes wrong.

All clients are the real ones, down to their HTTP: botocore's, the library's own, and urllib3. Nothing waits: what would
be a timeout comes at once. So a run takes as long as it computes, and thousands of them are possible.
"""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from email.utils import formatdate
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from zlib import crc32

import botocore.endpoint
import botocore.hooks
import botocore.loaders
import botocore.regions
import botocore.session
import botocore.useragent
import pytest
import urllib3.connection
import urllib3.exceptions
from botocore.client import ClientCreator
from botocore.endpoint_provider import EndpointProvider
from botocore.model import ServiceModel
from moto import backends
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.test import run_wsgi_app

from coldstream.local.dynamodb.application import DynamoItems
from coldstream.local.http_api import http_event, http_response
from coldstream.local.http_exchange import Request
from coldstream.local.request_lock import RequestLock
from coldstream.local.transaction_tokens import TransactionTokens
from coldstream.store.clock import HEARD
from tests.faults.fault_kinds import FaultKind, WireAnswer, misbehave, takes_effect
from tests.faults.http_messages import HttpAnswer, HttpRequest, answer
from tests.faults.memory_socket import MemorySocket
from tests.support.functions import FunctionContext, load_function

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

URL = "http://127.0.0.1:4000"
RESOLVER_HOST = "127.0.0.1:4001"
PORTS = {4000, 4001}
FateOf = Callable[[HttpRequest, int], FaultKind | None]
_WAITS = re.compile(rb'("WaitTimeSeconds": ?)\d+')


class MemoryNetwork:
    """The services, and what lies before them. `fate_of` is asked about each request, with its number from 0 on.

    `asked` are the requests that were answered as is right, with the kinds of fault that would have been another
    answer; `struck` those that got another answer, with the kind. `is_changed` is set by a request that may change
    something. AWS's clock is `ahead_s` ahead of this machine's. Unless it `follows`, no answer can be stale, and none
    is added to `asked`.
    """

    def __init__(self) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        # Always readable: so nobody waits for it, and a connection that is idle is taken for one that was closed.
        self.always_readable = os.open(os.devnull, os.O_RDONLY)
        self.forget()
        self.fate_of: FateOf = lambda request, number: None
        self.asked: list[tuple[HttpRequest, frozenset[FaultKind]]] = []
        self._count = self._chance = 0
        self.is_changed = False
        self.follows = True
        self.struck: list[tuple[FaultKind, HttpRequest]] = []

    def begin(self, fate_of: FateOf, chance: int = 0) -> None:
        """Count from 0 again, with other fates; `chance` decides which byte of an answer is another."""
        self.fate_of, self._chance = fate_of, chance
        self.asked, self.struck, self._count = [], [], 0

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """Answer what is asked meanwhile as is right, and do not count it."""
        kept = self.fate_of, self.asked, self.struck, self._count, self._chance
        self.begin(lambda request, number: None)
        yield
        self.fate_of, self.asked, self.struck, self._count, self._chance = kept

    def ask(self, request: HttpRequest) -> WireAnswer:
        """Answer a request."""
        self.is_changed |= request.writes
        with self._lock:
            number = self._count
            self._count += 1
            kind = self.fate_of(request, number)
        earlier = self._answer_of(self._behind, request) if self.follows and request.may_be_stale else None
        if kind is None:
            found = self._carry_out(request)
            if not self.follows:
                return WireAnswer(found.to_bytes())
            possible = frozenset(one for one in FaultKind if takes_effect(one, request, found, earlier))
            self.asked.append((request, possible))
            return WireAnswer(found.to_bytes())
        number += self._chance
        answered = misbehave(kind, request, lambda: self._carry_out(request), number=number, earlier=earlier)
        if not answered.is_right:
            self.struck.append((kind, request))
        return answered

    def items_of(self, table: str) -> list[Any]:
        """Return all items of a table, in any order, though nobody asks for them."""
        fields = {
            "x-amz-target": "DynamoDB_20120810.Scan",
            "authorization": "Credential=a/20261128/eu-central-1/dynamodb/",
        }
        asked = HttpRequest("POST", "/", fields, json.dumps({"TableName": table}).encode())
        found = json.loads(self._answer_of(self._application, asked).body)
        assert "LastEvaluatedKey" not in found, "a table of more than one page"
        items: list[Any] = found["Items"]
        return items

    def _carry_out(self, request: HttpRequest) -> HttpAnswer:
        if request.fields.get("host") == RESOLVER_HOST:
            return self._resolve(request)
        if self.follows and request.is_dynamodb and request.writes and "Table" not in request.operation:
            with self._lock:
                last, self._last = self._last, request
            if last is not None:
                self._answer_of(self._behind, last)
        return self._answer_of(self._application, request)

    def _answer_of(self, application: WSGIApplication, request: HttpRequest) -> HttpAnswer:
        path, _, query = request.target.partition("?")
        environ: dict[str, Any] = {
            "REQUEST_METHOD": request.method,
            "SCRIPT_NAME": "",
            "PATH_INFO": unquote(path, "latin-1"),
            "RAW_URI": request.target,
            "REQUEST_URI": request.target,
            "QUERY_STRING": query,
            "SERVER_NAME": "127.0.0.1",
            "SERVER_PORT": "4000",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "wsgi.version": (1, 0),
            "wsgi.url_scheme": "http",
            "wsgi.input": io.BytesIO(_WAITS.sub(rb"\g<1>0", request.body)),
            "wsgi.errors": io.StringIO(),
            "wsgi.multithread": False,
            "wsgi.multiprocess": False,
            "wsgi.run_once": False,
            "CONTENT_LENGTH": str(len(request.body)),
        }
        for name, value in request.fields.items():
            if name == "content-type":
                environ["CONTENT_TYPE"] = value
            elif name not in {"content-length", "expect"}:
                environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
        with self._lock:  # moto locks nothing; the resolver, above, waits for requests of its own
            body, status, headers = run_wsgi_app(application, environ, buffered=True)
            data = b"".join(body)
        fields = tuple((name, value) for name, value in headers.items() if name.lower() != "connection")
        found = HttpAnswer(status, fields, data)
        if request.is_dynamodb:
            found = found.with_field("x-amz-crc32", str(crc32(data)))  # as DynamoDB does, and moto does not
        return found.with_field("Date", formatdate(time.time() + self.ahead_s, usegmt=True))

    def _resolve(self, request: HttpRequest) -> HttpAnswer:
        """Have the resolver function answer, as API Gateway does; it asks the table through this network."""
        event = http_event(
            Request(request.method, request.target, tuple(request.fields.items()), request.body, "127.0.0.1")
        )
        try:
            with self._lock, redirect_stdout(io.StringIO()):
                function = load_function("resolver")  # its logger writes to where standard output is now
            result = function.lambda_handler(event, FunctionContext("resolver"))
        except Exception:  # noqa: BLE001  a function that fails: API Gateway says no more either
            return answer("500 Internal Server Error", b'{"message":"Internal Server Error"}')
        found = http_response(result)
        return answer(f"{found.status} {HTTPStatus(found.status).phrase}", found.body, *found.headers)

    def forget(self) -> None:
        """Drop the items of all tables; what moto has, its `BackendDict` drops."""
        self.ahead_s = 0
        self._application = RequestLock(TransactionTokens(DynamoItems(self._moto)))
        # As the tables were before the last write: what a read may answer with that is not consistent.
        self._behind = DynamoItems(self._moto)
        self._last: HttpRequest | None = None


_sanitize = cache(botocore.useragent.sanitize_user_agent_string_component)
_loader = cache(botocore.loaders.create_loader)
_providers: dict[tuple[int, int], tuple[EndpointProvider, tuple[Any, ...]]] = {}
_service_models: dict[tuple[str, str | None], ServiceModel] = {}
_load_service_model = ClientCreator._load_service_model
_alias_event_name = cache(botocore.hooks.EventAliaser(None)._alias_event_name)
_MOTO_MODULES = frozenset(backends.list_of_moto_modules())


def _endpoint_provider(ruleset_data: Any, partition_data: Any, excluded_params: Any = None) -> EndpointProvider:
    """Return what knows the endpoints of a service; it is kept with its data, by whose identity it is found."""
    key = id(ruleset_data), id(partition_data)
    if key not in _providers:
        made = EndpointProvider(ruleset_data, partition_data, excluded_params)
        _providers[key] = made, (ruleset_data, partition_data)
    return _providers[key][0]


def _service_model(creator: ClientCreator, service_name: str, api_version: str | None = None) -> ServiceModel:
    """Return the description of a service, which remembers what was asked of it: the shapes of requests and answers."""
    key = service_name, api_version
    if key not in _service_models:
        _service_models[key] = _load_service_model(creator, service_name, api_version)
    return _service_models[key]


@contextmanager
def connected(network: MemoryNetwork, time_ns: int) -> Iterator[None]:
    """Have every connection that is opened go to the network, and every wait between attempts take no time.

    This machine's clock, and so AWS's, stands still: what two runs leave is the same, if they did the same.
    """

    def new(connection: urllib3.connection.HTTPConnection) -> Any:
        if connection.port not in PORTS:
            raise urllib3.exceptions.NewConnectionError(connection, "connection refused")
        return MemorySocket(network.ask, network.always_readable)

    def plain(connection: Any) -> None:
        if connection.port not in PORTS:
            raise ConnectionRefusedError(111, "connection refused")
        connection.sock = MemorySocket(network.ask, network.always_readable)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(urllib3.connection.HTTPConnection, "_new_conn", new)
        patch.setattr(http.client.HTTPConnection, "connect", plain)
        # Each session reads the same large files, and each client the same rules: that takes longer than all else.
        patch.setattr(botocore.session, "create_loader", _loader)
        patch.setattr(ClientCreator, "_load_service_model", _service_model)
        patch.setattr(botocore.hooks, "accepts_kwargs", lambda handler: True)
        patch.setattr(botocore.hooks.EventAliaser, "_alias_event_name", lambda self, name: _alias_event_name(name))
        patch.setattr(botocore.endpoint, "get_environ_proxies", lambda url: {})
        patch.setattr(botocore.useragent, "sanitize_user_agent_string_component", _sanitize)
        patch.setattr(botocore.regions, "EndpointProvider", _endpoint_provider)
        patch.setattr(backends, "list_of_moto_modules", lambda: _MOTO_MODULES)
        patch.setattr(time, "sleep", lambda seconds: None)
        patch.setattr(HEARD, "_monotonic_ns", lambda: time_ns)
        patch.setattr(HEARD, "_offset_ms", None)
        patch.setattr(time, "time_ns", lambda: time_ns)
        patch.setattr(time, "time", lambda: time_ns / 1_000_000_000)
        yield
