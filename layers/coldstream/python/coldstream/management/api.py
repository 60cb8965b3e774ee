"""Requests to the management API at a URL such as `https://user:password@host:15671`, both percent-encoded.

Certificates are verified against the system's authorities. No error shows the user or the password.
"""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote, unquote, urlsplit

from coldstream.errors import AccessDeniedError, BrokerRefusedError, InvalidSettingError, UnavailableError
from coldstream.read.http import ClosedError, HttpClient
from coldstream.read.response import HttpResponse
from coldstream.units import MIB

_Parsed = TypeVar("_Parsed")

MAX_ANSWER_BYTES = 16 * MIB
READ_TIMEOUT_S = 10.0
ATTEMPTS = 2


class ManagementApi:
    """Any thread may call it. Raises InvalidSettingError if the URL is not one.

    `refused_for` says what the user lacks if the API refuses it.
    """

    def __init__(self, url: str, refused_for: str) -> None:
        self.url, self._headers = _address(url)
        self._refused_for = refused_for
        self._is_closed = False
        self._clients: set[HttpClient] = set()

    def close(self) -> None:
        """Abort the requests under way, and refuse new ones."""
        self._is_closed = True
        # Over a copy: the threads whose requests are aborted here take their clients out of the set.
        for client in list(self._clients):
            client.close()

    @contextmanager
    def session(self, timeout_s: float, failure: str) -> Iterator[ManagementSession]:
        """Lend a session of one connection, whose requests together take `timeout_s` at most.

        A timeout for each read does not bound the whole: a server that sends a byte now and then would hold the thread.
        Then it raises UnavailableError with `failure`; read.http.ClosedError at once after `close`.
        """
        client = HttpClient(connections=1, read_timeout_s=READ_TIMEOUT_S, attempts=ATTEMPTS)
        self._clients.add(client)  # before `_is_closed` is read: `close` sets it, and then closes those it finds here
        timer = threading.Timer(timeout_s, client.close)
        timer.daemon = True
        timer.start()
        try:
            if self._is_closed:
                raise ClosedError
            yield ManagementSession(client, self.url, self._headers, self._refused_for)
        except ClosedError as err:
            if self._is_closed:
                raise
            raise UnavailableError(f"{self.url} has not {failure} within {timeout_s:g} s") from err
        finally:
            timer.cancel()
            self._clients.discard(client)
            client.close()


class ManagementSession:
    """Sends requests one after another. A request that fails is sent again."""

    def __init__(self, client: HttpClient, url: str, headers: dict[str, str], refused_for: str) -> None:
        self._client = client
        self._url = url
        self._headers = headers
        self._refused_for = refused_for

    def get(self, path: str, parse: Callable[[Any], _Parsed], *, absent: Collection[int] = ()) -> _Parsed:
        """GET below `/api/`, and return what `parse` makes of the document, None for a status in `absent`.

        Raises AccessDeniedError; UnavailableError, also if `parse` fails or the answer exceeds `MAX_ANSWER_BYTES`.
        """

        def read(response: HttpResponse) -> _Parsed:
            body = _body(response)
            if response.status in absent:
                return parse(None)
            self._check(response.status, body)
            try:
                return parse(json.loads(body))
            except (KeyError, OverflowError, RecursionError, TypeError, ValueError) as err:
                raise UnavailableError(f"{self._url} answered, but not as a management API: {err!r}") from err

        return self._client.request("GET", f"{self._url}/api/{path}", lambda: self._headers, read)

    def put(self, path: str, document: Any) -> None:
        """PUT a document. Raises BrokerRefusedError if the broker takes it for wrong; else as `get`."""
        self._write("PUT", path, document)

    def delete(self, path: str) -> None:
        """DELETE; what is not there is deleted already. Raises as `put`."""
        self._write("DELETE", path, None, absent=(HTTPStatus.NOT_FOUND,))

    def _write(self, method: str, path: str, document: Any, *, absent: Collection[int] = ()) -> None:
        def read(response: HttpResponse) -> None:
            body = _body(response)
            if response.status not in absent:
                if response.status in {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND}:
                    raise BrokerRefusedError(f"{method} {path}: {_reason(body)}")
                self._check(response.status, body)

        content = None if document is None else json.dumps(document).encode()
        headers = self._headers | ({} if content is None else {"content-type": "application/json"})
        self._client.request(method, f"{self._url}/api/{path}", lambda: headers, read, content)

    def _check(self, status: int, body: bytes) -> None:
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise AccessDeniedError(f"{self._url} refuses the user: {_reason(body)}; {self._refused_for}")
        if status not in {HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT}:
            raise UnavailableError(f"{self._url} answered {status}: {_reason(body)}")
        if len(body) > MAX_ANSWER_BYTES:
            raise UnavailableError(f"{self._url} answered more than {MAX_ANSWER_BYTES} bytes")


def quoted(*names: str) -> str:
    """Return a path of names, each percent-encoded, also the vhost "/"."""
    return "/".join(quote(name, safe="") for name in names)


def _body(response: HttpResponse) -> bytes:
    # One byte more than is allowed, to tell a body that is just as long from one that is longer.
    return response.read(MAX_ANSWER_BYTES + 1)


def _address(url: str) -> tuple[str, dict[str, str]]:
    """Split a URL into one without credentials, and the headers that carry them."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or parts.scheme not in {"http", "https"} or parts.query or parts.fragment:
        # Neither the URL nor the parser's error is quoted: both may show the password.
        raise InvalidSettingError("management URL", "is not of the form http[s]://user:password@host[:port]") from None
    headers = {"accept": "application/json", "user-agent": "coldstream"}
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["authorization"] = f"Basic {b64encode(credentials.encode()).decode()}"
    shown_host = f"[{host}]" if ":" in host else host
    netloc = shown_host if port is None else f"{shown_host}:{port}"
    return f"{parts.scheme}://{netloc}{parts.path.rstrip('/')}", headers


def _reason(body: bytes) -> str:
    try:
        answer = json.loads(body)
        text = answer["reason"] if "reason" in answer else answer["error"]
    except (KeyError, RecursionError, TypeError, ValueError):
        text = body[:80].decode(errors="replace")
    return repr(str(text)[:200])
