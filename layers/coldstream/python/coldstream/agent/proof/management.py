"""A broker's streams and their retention, by its HTTP management API.

    GET {url}/api/queues?page=N&page_size=500&columns=vhost,name,type,arguments,effective_policy_definition
    GET {url}/api/vhosts?columns=name    (without pages: RabbitMQ 4 answers 500 to a request for one)

Retention is what the broker applies (rabbit_stream_queue:make_stream_conf/1): a policy's `max-age`,
`max-length-bytes` and `stream-max-segment-size-bytes` override the stream's own arguments `x-…`, whichever is smaller.
The effective definition is the policy as an operator policy limits it. It is part of the statistics, which come about
five seconds after a stream is declared, and never if the broker collects none (`disable_metrics_collector`).

The user needs the tag `management` or `monitoring`, and permissions in each vhost whose streams it is to see. With the
tag `monitoring` it also sees which other vhosts there are.
"""

from __future__ import annotations

import json
import re
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import urllib3

from coldstream.errors import AccessDeniedError, InvalidNameError, InvalidSettingError, UnavailableError
from coldstream.manifest.stream import check_name
from coldstream.read.http import ClosedError, HttpClient
from coldstream.units import MIB

_Parsed = TypeVar("_Parsed")

PAGE_STREAMS = 500
"""The most that the API gives in one page. 500 queues took a 3.10.8 broker 50 ms, and 47 KB."""

MAX_PAGES = 1000
MAX_PAGE_BYTES = 16 * MIB
READ_TIMEOUT_S = 10.0
LIST_TIMEOUT_S = 120.0
"""For all pages together, however slowly they come."""

ATTEMPTS = 2

_AGE = re.compile(r"(?P<number>[0-9]+)(?P<unit>[YMDhms])")
_UNIT_MS = {
    "Y": 365 * 86_400_000,
    "M": 30 * 86_400_000,
    "D": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
}

# Beyond these a limit is no limit: no clock and no disk gets there.
_MAX_AGE_DIGITS = 12
_MAX_SIZE_BYTES = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class BrokerStream:
    """A stream as the broker knows it. None is no limit, or one that is not known yet."""

    vhost: str
    name: str
    max_age_ms: int | None = None
    max_length_bytes: int | None = None
    max_segment_bytes: int | None = None


class ManagementClient:
    """Asks the management API at a `url` such as `https://user:password@host:15671`, both percent-encoded.

    Certificates are verified against the system's authorities. Any thread may call it. Raises InvalidSettingError if
    the URL is not one; no error shows the user or the password.
    """

    def __init__(self, url: str) -> None:
        self._url, self._headers = _address(url)
        self._is_closed = False
        self._clients: set[HttpClient] = set()

    def streams(self) -> list[BrokerStream]:
        """Return the streams of all vhosts that the user may see, but for those whose names cannot be archived.

        While queues are declared or deleted, a stream may be missing once or be there twice, as pages are read one
        after another. Cost: a request for every 500 queues of any type. Raises UnavailableError, AccessDeniedError, and
        read.http.ClosedError at once after `close`.
        """
        found: list[BrokerStream] = []
        with self._client() as client:
            for page in range(1, MAX_PAGES + 1):
                items, pages = self._page(client, page)
                found += [_stream(item) for item in items if item.get("type") == "stream" and _has_names(item)]
                if page >= pages:
                    break
        return found

    def vhosts(self) -> list[str]:
        """Return the vhosts that the user may see, but not their streams. One request. Raises as `streams`."""
        with self._client() as client:
            return self._get(
                client, "vhosts?columns=name", lambda items: [_checked(item, "name")["name"] for item in items]
            )

    def close(self) -> None:
        """Abort the requests under way, and refuse new ones."""
        self._is_closed = True
        # Over a copy: the threads whose requests are aborted here take their clients out of the set.
        for client in list(self._clients):
            client.close()

    @contextmanager
    def _client(self) -> Iterator[HttpClient]:
        """Lend a client that is closed when the time for a list is over.

        A timeout for each read does not bound the whole: a server that sends a byte now and then would hold the thread.
        """
        client = HttpClient(connections=1, read_timeout_s=READ_TIMEOUT_S, attempts=ATTEMPTS)
        self._clients.add(client)  # before `_is_closed` is read: `close` sets it, and then closes those it finds here
        timer = threading.Timer(LIST_TIMEOUT_S, client.close)
        timer.daemon = True
        timer.start()
        try:
            if self._is_closed:
                raise ClosedError
            yield client
        except ClosedError as err:
            if self._is_closed:
                raise
            raise UnavailableError(f"{self._url} has not listed its queues within {LIST_TIMEOUT_S:g} s") from err
        finally:
            timer.cancel()
            self._clients.discard(client)
            client.close()

    def _page(self, client: HttpClient, page: int) -> tuple[list[dict[str, Any]], int]:
        columns = "vhost,name,type,arguments,effective_policy_definition"

        def parse(answer: Any) -> tuple[list[dict[str, Any]], int]:
            if answer is None:
                return [], 0  # there are fewer queues now, and no such page
            return [_checked(item, "vhost", "name") for item in answer["items"]], int(answer["page_count"])

        path = f"queues?page={page}&page_size={PAGE_STREAMS}&columns={columns}"
        return self._get(client, path, parse, may_be_past_the_end=page > 1)

    def _get(
        self, client: HttpClient, path: str, parse: Callable[[Any], _Parsed], *, may_be_past_the_end: bool = False
    ) -> _Parsed:
        """Request a list, and return it parsed; for a page past the last one, `parse` gets None."""

        def read(response: urllib3.BaseHTTPResponse) -> _Parsed:
            # One byte more than is allowed, to tell a body that is just as long from one that is longer.
            body = response.read(MAX_PAGE_BYTES + 1)
            # The API answers 400 to a page past the last one, as when queues were deleted since the page before.
            if response.status == HTTPStatus.BAD_REQUEST and may_be_past_the_end:
                return parse(None)
            self._check(response.status, body)
            try:
                return parse(json.loads(body))
            except (KeyError, OverflowError, RecursionError, TypeError, ValueError) as err:
                raise UnavailableError(f"{self._url} answered, but not as a management API: {err!r}") from err

        return client.get(f"{self._url}/api/{path}", lambda: self._headers, read)

    def _check(self, status: int, body: bytes) -> None:
        if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            raise AccessDeniedError(
                f"{self._url} refuses the user: {_reason(body)}; it needs the tag monitoring, and permissions in vhosts"
            )
        if status != HTTPStatus.OK:
            raise UnavailableError(f"{self._url} answered {status}: {_reason(body)}")
        if len(body) > MAX_PAGE_BYTES:
            raise UnavailableError(f"{self._url} answered more than {MAX_PAGE_BYTES} bytes for {PAGE_STREAMS} queues")


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


def _checked(item: Any, *texts: str) -> dict[str, Any]:
    if not (isinstance(item, dict) and all(isinstance(item[text], str) for text in texts)):
        raise TypeError(f"an item without {' and '.join(texts)}")
    return item


def _has_names(item: Mapping[str, Any]) -> bool:
    try:
        check_name("vhost", item["vhost"])
        check_name("stream name", item["name"])
    except InvalidNameError:
        return False
    return True


def _stream(item: Mapping[str, Any]) -> BrokerStream:
    policy, arguments = _mapping(item.get("effective_policy_definition")), _mapping(item.get("arguments"))

    def setting(name: str) -> Any:
        return policy[name] if name in policy else arguments.get(f"x-{name}")

    return BrokerStream(
        vhost=item["vhost"],
        name=item["name"],
        max_age_ms=_age_ms(setting("max-age")),
        max_length_bytes=_size(setting("max-length-bytes")),
        max_segment_bytes=_size(setting("stream-max-segment-size-bytes")),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    # Some releases send an empty one as [] or "".
    return value if isinstance(value, dict) else {}


def _age_ms(value: Any) -> int | None:
    """Parse an age as the broker does (rabbit_amqqueue:check_max_age/1); None if the broker would not take it."""
    match = _AGE.fullmatch(value) if isinstance(value, str) else None
    if match is None or len(match["number"]) > _MAX_AGE_DIGITS or int(match["number"]) == 0:
        return None
    return int(match["number"]) * _UNIT_MS[match["unit"]]


def _size(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_SIZE_BYTES else None
