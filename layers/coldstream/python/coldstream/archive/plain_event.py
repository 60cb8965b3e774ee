"""Read an agent's event without the library that describes its schema, which takes a fifth of a cold start to load.

The schema is `archive.events`, and it alone says what an event is. This reader takes what every agent writes: exactly
the fields of a schema, each of its type and within its bounds. Of anything else it does not say what is wrong: it has
the schema read the event, and give the answer or the error. So the two can only differ in time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from coldstream.archive.borders import QuietSpans
from coldstream.archive.envelope import DETAIL_TYPE, LOST_DETAIL_TYPE, VERSION, cluster_of
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.segment_rolled import MAX_ETAG, SegmentRolled
from coldstream.errors import ColdstreamError
from coldstream.manifest.stream import StreamId, incarnation
from coldstream.plain_json import read_json
from coldstream.units import MAX_OFFSET, Offset

_INCARNATION = re.compile("[A-Za-z0-9_=-]{1,255}")


class _OtherwiseError(Exception):
    """The event is not as agents write it, or not as it should be."""


def read_event(body: str) -> SegmentRolled | SegmentLost:
    """Decode the body of an SQS record, as `archive.events.event_of`, whose errors it raises."""
    try:
        return _read(body)
    except (_OtherwiseError, ColdstreamError, ValueError):
        from coldstream.archive.events import event_of  # noqa: PLC0415  # what is rarely needed

        return event_of(body)


def _read(body: str) -> SegmentRolled | SegmentLost:
    envelope = read_json(body)
    if not isinstance(envelope, dict):
        raise _OtherwiseError
    announcing = cluster_of(envelope.get("source"))
    detail = envelope.get("detail")
    kind = envelope.get("detail-type")
    if kind == DETAIL_TYPE:
        version, stream, segment, staged = _fields(detail, "version", "stream", "segment", "staged")
        first, next_, size, *cut = _fields(
            segment, "first_offset", "next_offset", "size_bytes", may_have=("cut_every_ms", "quiet")
        )
        bucket, key, *etag = _fields(staged, "bucket", "key", may_have=("etag",))
        _check_version(version)
        return SegmentRolled(
            _stream(stream),
            _offset(first),
            _offset(next_),
            _number(size),
            _text(bucket),
            _text(key),
            cut_every_ms=_number(cut[0]) if cut else None,
            etag=_etag(etag[0]) if etag else None,
            cluster=announcing,
            quiet=_quiet(cut[1]) if cut[1:] else None,
        )
    if kind == LOST_DETAIL_TYPE:
        version, stream, lost, reason, *unseen = _fields(
            detail, "version", "stream", "lost", "reason", may_have=("unseen",)
        )
        first, next_ = _fields(lost, "first_offset", "next_offset")
        _check_version(version)
        if unseen and unseen[0] is not True:
            raise _OtherwiseError
        return SegmentLost(
            _stream(stream), _offset(first), _offset(next_), _text(reason), cluster=announcing, unseen=bool(unseen)
        )
    raise _OtherwiseError


def _fields(of: Any, *names: str, may_have: tuple[str, ...] = ()) -> list[Any]:
    """Return the values of exactly these fields, and of more, each of which may be there if the one before it is."""
    if not isinstance(of, Mapping):
        raise _OtherwiseError
    found = [*names, *takewhile(of.__contains__, may_have)]
    if of.keys() != set(found):
        raise _OtherwiseError
    return [of[name] for name in found]


def _check_version(version: Any) -> None:
    if _number(version) != VERSION:
        raise _OtherwiseError


def _number(value: Any) -> int:
    if type(value) is not int:  # True is an int, too
        raise _OtherwiseError
    return value


def _offset(value: Any) -> Offset:
    if not 0 <= _number(value) <= MAX_OFFSET:
        raise _OtherwiseError
    return Offset(value)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _OtherwiseError
    value.encode()  # a ValueError for half of a character
    return value


def _quiet(value: Any) -> QuietSpans:
    min_bytes, every_ms = _fields(value, "min_bytes", "every_ms")
    return QuietSpans(_number(min_bytes), _number(every_ms))


def _etag(value: Any) -> str:
    if not 1 <= len(_text(value)) <= MAX_ETAG:
        raise _OtherwiseError
    return str(value)


def _stream(value: Any) -> StreamId:
    vhost, name, directory = _fields(value, "vhost", "name", "incarnation")
    if not _INCARNATION.fullmatch(_text(directory)):
        raise _OtherwiseError
    return StreamId(_text(vhost), _text(name), incarnation(directory))
