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

import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from coldstream.errors import InvalidNameError
from coldstream.management.api import ManagementApi, ManagementSession
from coldstream.manifest.stream import check_name

PAGE_STREAMS = 500
"""The most that the API gives in one page. 500 queues took a 3.10.8 broker 50 ms, and 47 KB."""

MAX_PAGES = 1000
LIST_TIMEOUT_S = 120.0
"""For all pages together, however slowly they come."""

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
    """Asks the management API at a `url` (`management.api`). Any thread may call it. Raises InvalidSettingError."""

    def __init__(self, url: str) -> None:
        self._api = ManagementApi(url, "it needs the tag monitoring, and permissions in vhosts")

    def streams(self) -> list[BrokerStream]:
        """Return the streams of all vhosts that the user may see, but for those whose names cannot be archived.

        While queues are declared or deleted, a stream may be missing once or be there twice, as pages are read one
        after another. Cost: a request for every 500 queues of any type. Raises UnavailableError, AccessDeniedError, and
        read.http.ClosedError at once after `close`.
        """
        found: list[BrokerStream] = []
        with self._api.session(LIST_TIMEOUT_S, "listed its queues") as session:
            for page in range(1, MAX_PAGES + 1):
                items, pages = _page(session, page)
                found += [_stream(item) for item in items if item.get("type") == "stream" and _has_names(item)]
                if page >= pages:
                    break
        return found

    def vhosts(self) -> list[str]:
        """Return the vhosts that the user may see, but not their streams. One request. Raises as `streams`."""
        with self._api.session(LIST_TIMEOUT_S, "listed its vhosts") as session:
            return session.get("vhosts?columns=name", lambda items: [_checked(item, "name")["name"] for item in items])

    def close(self) -> None:
        """Abort the requests under way, and refuse new ones."""
        self._api.close()


def _page(session: ManagementSession, page: int) -> tuple[list[dict[str, Any]], int]:
    def parse(answer: Any) -> tuple[list[dict[str, Any]], int]:
        if answer is None:
            return [], 0  # there are fewer queues now, and no such page
        return [_checked(item, "vhost", "name") for item in answer["items"]], int(answer["page_count"])

    columns = "vhost,name,type,arguments,effective_policy_definition"
    # The API answers 400 to a page past the last one, as when queues were deleted since the page before.
    past_the_end = (HTTPStatus.BAD_REQUEST,) if page > 1 else ()
    return session.get(f"queues?page={page}&page_size={PAGE_STREAMS}&columns={columns}", parse, absent=past_the_end)


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
