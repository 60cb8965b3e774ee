"""Which streams a broker has, and what retention they are under, by its HTTP management API.

    GET {url}/api/queues?page=N&page_size=500&columns=vhost,name,type,arguments,effective_policy_definition
    GET {url}/api/vhosts?columns=name    (RabbitMQ 4 answers 500 where pages of it are asked for)

Retention as the broker has it (rabbit_stream_queue:make_stream_conf/1): a policy's `max-age`, `max-length-bytes` and
`stream-max-segment-size-bytes` go before the stream's own arguments `x-…`, whichever is smaller. The effective
definition is the policy as an operator policy limits it. It is part of the statistics: it comes some five seconds after
a stream is declared, and never where the broker collects none (`disable_metrics_collector`).

The user needs the tag `management` or `monitoring`, and permissions in each vhost whose streams are to be seen. With
the tag `monitoring` it sees also that there are others.
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
"""The most that the API gives at once. 500 queues took a 3.10.8 broker 50 ms, and 47 KB."""

MAX_PAGES = 1000
MAX_PAGE_BYTES = 16 * MIB
READ_TIMEOUT_S = 10.0
LIST_TIMEOUT_S = 120.0
"""For all pages, however slowly they come."""

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

# Past these a limit is none: nobody's clock or disk gets there.
_MAX_AGE_DIGITS = 12
_MAX_SIZE_BYTES = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class BrokerStream:
    """A stream as the broker knows it. None means no limit, or one that is not known yet."""

    vhost: str
    name: str
    max_age_ms: int | None = None
    max_length_bytes: int | None = None
    max_segment_bytes: int | None = None


class ManagementClient:
    """Asks the management API at `url`, as `https://user:password@host:15671`; both are percent-encoded.

    Certificates are verified against the system's authorities. Safe to use from several threads. Raises
    InvalidSettingError when the URL is not one; no error says what the user and the password are.
    """

    def __init__(self, url: str) -> None:
        self._url, self._headers = _address(url)
        self._is_closed = False
        self._clients: set[HttpClient] = set()

    def streams(self) -> list[BrokerStream]:
        """Return the streams of all vhosts that the user may see, but for those whose names cannot be archived.

        Pages are asked for one after the other, so a stream may be missing once, or there twice, while queues are
        declared or deleted. Cost: a request for each 500 queues of any type. Raises UnavailableError,
        AccessDeniedError; and whatever its thread is at, serve.http.ClosedError after `close`.
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
        """Return the vhosts that the user may see, though not what is in them; one request. Raises as `streams`."""
        with self._client() as client:
            return self._get(
                client, "vhosts?columns=name", lambda items: [_checked(item, "name")["name"] for item in items]
            )

    def close(self) -> None:
        """End the requests under way, and refuse new ones."""
        self._is_closed = True
        for client in list(self._clients):
            client.close()

    @contextmanager
    def _client(self) -> Iterator[HttpClient]:
        """Give a client that is closed when the time is over."""
        client = HttpClient(connections=1, read_timeout_s=READ_TIMEOUT_S, attempts=ATTEMPTS)
        self._clients.add(client)
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
        """Ask for a list, and return it parsed; past the last page `parse` is given None."""

        def read(response: urllib3.BaseHTTPResponse) -> _Parsed:
            body = response.read(MAX_PAGE_BYTES + 1)
            if response.status == HTTPStatus.BAD_REQUEST and may_be_past_the_end:
                return parse(None)
            self._check(response.status, body)
            try:
                return parse(json.loads(body))
            except (KeyError, OverflowError, RecursionError, TypeError, ValueError) as err:
                raise UnavailableError(f"{self._url} answered what the management API does not: {err!r}") from err

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
    """Take a URL apart: without its credentials, and the headers that carry them."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or parts.scheme not in {"http", "https"} or parts.query or parts.fragment:
        # The text stays out of the message, and what it could not be parsed for as well: both may show the password.
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
    # An empty one comes as [] or "" from some releases.
    return value if isinstance(value, dict) else {}


def _age_ms(value: Any) -> int | None:
    """Read an age as the broker does (rabbit_amqqueue:check_max_age/1); None for what it would not take."""
    match = _AGE.fullmatch(value) if isinstance(value, str) else None
    if match is None or len(match["number"]) > _MAX_AGE_DIGITS or int(match["number"]) == 0:
        return None
    return int(match["number"]) * _UNIT_MS[match["unit"]]


def _size(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_SIZE_BYTES else None
