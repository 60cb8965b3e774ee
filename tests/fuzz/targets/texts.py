"""Cursors, which clients give back, and all that people and programs ask by: queries, specs, times, patterns."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from typing import Any

from coldstream.browse.catalogue_cursor import CatalogueCursor
from coldstream.browse.catalogue_query import CatalogueColumn
from coldstream.browse.cost import ReadCost
from coldstream.browse.predicate_text import parse_predicate
from coldstream.browse.search_cursor import SearchCursor
from coldstream.browse.search_slice import SearchProgress, SearchQuery
from coldstream.errors import InvalidInputError
from coldstream.format.amqp.field import MessageField
from coldstream.jobs.schedule import Schedule
from coldstream.live.address import BrokerAddress
from coldstream.manifest.access import StreamPattern, patterns_in
from coldstream.manifest.cluster import cluster
from coldstream.manifest.shard_position import ShardPosition
from coldstream.manifest.spec import NEXT, AtTimestamp, parse_offset_spec
from coldstream.manifest.stream import check_name, incarnation
from coldstream.resolve.cursor import Cursor
from coldstream.resolve.super_answer import SuperOrder
from coldstream.resolve.super_cursor import SuperCursor
from coldstream.serve.protocol.content_type import ContentType
from coldstream.serve.protocol.lifetime import parse_lifetime
from coldstream.serve.protocol.offset_token import parse_place
from coldstream.store.parsed_keys import parse as parse_key
from coldstream.terminal.ranges import OffsetSelection
from coldstream.units import Offset, TimestampMs, format_timestamp, parse_duration, parse_size, parse_time
from coldstream.web.access_tokens import AccessTokens
from tests.fuzz.fuzz_target import INVALID, FuzzTarget, choose, chosen, same

_NOW = TimestampMs(1_763_700_000_000)
_LIFE = incarnation("__orders_1763700000000000000")
_VHOST, _NAME = "/", "örders"
_QUERY = SearchQuery(_VHOST, _NAME, parse_predicate('body ~ "error"'))
_IS_BASE64 = 4
"""The bit of the first byte by which the rest is put into base64, as every cursor is."""


def _resolver(text: str) -> None:
    same(Cursor.from_text(text).to_text(), text)


def _super(text: str) -> None:
    same(SuperCursor.from_text(text, _VHOST, _NAME).to_text(_VHOST, _NAME), text)


def _search(text: str) -> None:
    same(SearchCursor.from_text(text, _QUERY).to_text(_QUERY), text)


def _catalogue(text: str) -> None:
    same(CatalogueCursor.from_text(text).to_text(), text)


_CURSORS = (_resolver, _super, _search, _catalogue)


def _cursor(data: bytes) -> None:
    read, rest = choose(data, _CURSORS)
    is_base64 = bool(data and data[0] & _IS_BASE64)
    read(urlsafe_b64encode(rest).decode().rstrip("=") if is_base64 else _text(rest))


def _spec(text: str) -> None:
    spec = parse_offset_spec(text)
    same(parse_offset_spec(str(spec)), spec)
    if isinstance(spec, AtTimestamp):
        format_timestamp(spec.timestamp)


def _person_spec(text: str) -> None:
    parse_offset_spec(text, _NOW)


def _predicate(text: str) -> None:
    predicate = parse_predicate(text)
    same(parse_predicate(str(predicate)), predicate)


def _position(text: str) -> None:
    position = ShardPosition.from_text(text)
    same(ShardPosition.from_text(str(position)), position)


def _number(text: str) -> None:
    for parse in (parse_duration, parse_size, lambda text: parse_time(text, _NOW)):
        try:
            parse(text)  # type: ignore[operator]
        except ValueError:
            continue


def _pattern(text: str) -> None:
    patterns_in([text, f"coldstream.read:{text}"])
    StreamPattern.from_text(text).matches(text, _NAME)


def _key(text: str) -> None:
    found = parse_key(text)
    if found is not None and found.incarnation is not None:
        same(incarnation(found.incarnation), found.incarnation)


def _lifetime(text: str) -> None:
    ttl, _, expires_at = text.partition(" ")
    parse_lifetime(ttl or None, expires_at or None).ends_at(_NOW)


_TEXTS: tuple[tuple[Callable[[str], Any], tuple[str, ...]], ...] = (
    (_spec, ("first", "last", "next", "42", "timestamp:1763700000000", "2026-01-31T09:30:00.0001+01:00")),
    (_person_spec, ("yesterday", "-1h", "2026-01-31", "now-1d")),
    (
        _predicate,
        (
            'body ~ "error" and app.region = "eu"',
            'json:/user/id = 5 and json:"/a b" exists and size >= 1MiB',
            "properties.user-id = null and annotation.x-a != true and app.n < 1.5e3",
            "time >= 2026-01-31T09:30:00Z and offset < 18446744073709551615",
        ),
    ),
    (_position, ("v2,0:1042,1:977,2:0", "v1")),
    (_number, ("500MB", "0.5h", "30d", "2GiB", "-1h")),
    (_pattern, ("%2F/orders*", "*/*", "a%2Ab/c")),
    (OffsetSelection.from_text, ("1000:2000", ":", "5:")),
    (
        _key,
        (
            f"f4a3eca2_{_LIFE}/data/00000000000000000000.1.fragment",
            f"staging/main/{_LIFE}/00000000000000000000-00000000000000000010.segment",
            f"quarantine/{_LIFE}/00000000000000000000-9b2cf.segment.json",
            f"wal/host-1/0000000001/{0:020}",
        ),
    ),
    (MessageField.parse, ("properties.user_id", "application_properties.region", "message_annotations.x-a")),
    (Schedule.parse, ("every 6h", "*/5 1-3 * jan mon", "0 0 29 2 *")),
    (
        BrokerAddress.from_uri,
        ("rabbitmq-stream://guest:p%40ss@[::1]:5552,b?load_balanced=true", "rabbitmq-stream+tls://a"),
    ),
    (parse_place, ("-1", "now", "0000000000000042_0000000000000000")),
    (_lifetime, ("3600", " 2026-01-31T09:30:00Z")),
    (ContentType.parse, ("application/json; charset=utf-8", "text/plain")),
    (cluster, ("main-1",)),
    (incarnation, (_LIFE,)),
    (lambda text: check_name("stream", text), (_NAME,)),
    (lambda text: AccessTokens.parse(text.splitlines()), (f"{'a' * 64} me rw orders*",)),
    (CatalogueColumn.parse, ("stored_bytes",)),
)


def _query(data: bytes) -> None:
    (read, _), rest = choose(data, _TEXTS)
    read(_text(rest))


def _text(data: bytes) -> str:
    """Return any text that Python can hold: with half of a surrogate pair, too, as JSON and arguments can bring it."""
    return data.decode("utf-8", "surrogateescape")


def _cursor_seeds() -> Iterator[bytes]:
    progress = SearchProgress(Offset(1), Offset(5), Offset(9), 1, 2, 3, 4, 5, ReadCost(1, 2, 3, 4, 0.5))
    offsets = {0: Offset(0), 2: Offset(1 << 60)}
    texts = (
        (Cursor(_LIFE, Offset(42)).to_text(),),
        (
            SuperCursor(SuperOrder.KEY, NEXT, 2, 3, 1, 0, offsets).to_text(_VHOST, _NAME),
            SuperCursor(SuperOrder.ARRIVAL, AtTimestamp(_NOW), 1, 1, 0, 0, {}).to_text(_VHOST, _NAME),
        ),
        (SearchCursor(_LIFE, progress).to_text(_QUERY),),
        (
            CatalogueCursor(CatalogueColumn.NAME, False, True, "ä", "ä", "/", _LIFE).to_text(),
            CatalogueCursor(CatalogueColumn.AGE, True, False, 1.5, "a", "/", _LIFE).to_text(),
            CatalogueCursor(CatalogueColumn.COST, True, False, None, "a", "/", _LIFE).to_text(),
        ),
    )
    for number, those in enumerate(texts):
        for text in those:
            yield chosen(number, text.encode())
            yield chosen(number | _IS_BASE64, _decoded(text))


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _query_seeds() -> Iterator[bytes]:
    for number, (_, texts) in enumerate(_TEXTS):
        for text in texts:
            yield chosen(number, text.encode())


TARGETS = (
    FuzzTarget("cursors", _cursor, _cursor_seeds, INVALID),
    FuzzTarget("queries", _query, _query_seeds, (InvalidInputError,), max_bytes=1024),
)
