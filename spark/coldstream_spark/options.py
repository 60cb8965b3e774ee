"""The options of `format("coldstream")`, checked as a whole before anything is read.

An option that the RabbitMQ Streams connector for Spark has, too, has the same name and meaning here. Spark ignores the
case of their names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from coldstream.errors import InvalidQueryError, InvalidSettingError
from coldstream.manifest.spec import FIRST, NEXT, AtOffset, AtTimestamp, OffsetSpec
from coldstream.manifest.stream import Incarnation, check_name
from coldstream.manifest.stream import incarnation as checked_incarnation
from coldstream.units import Offset, parse_timestamp
from coldstream_spark.location import ArchiveLocation
from coldstream_spark.schema import COLUMNS, SHARD_COLUMNS

NAMES = (
    "stream",
    "streams",
    "superStream",
    "shardedStream",
    "streamPattern",
    "vhost",
    "incarnation",
    "columns",
    "startingOffsets",
    "startingOffset",
    "startingTimestamp",
    "endingOffsets",
    "endingOffset",
    "endingTimestamp",
    "minPartitions",
    "maxRecordsPerTrigger",
    "maxBytesPerTrigger",
    "failOnDataLoss",
    "pushFilters",
    "counts",
    "table",
    "bucket",
    "endpoint",
    "region",
)
ONE_SCAN = "one-scan"
_OF_A_TABLE = "provider"
"""An option that Spark adds for a table that is created."""

_BY_LOWER_CASE = {name.lower(): name for name in NAMES}
_WHICH_STREAMS = NAMES[:5]
_NO_TABLE = "Spark does not hand the options on when it reads"
_A_VIEW = "CREATE TEMPORARY VIEW … USING coldstream OPTIONS (…) keeps them"


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading begins or ends in each stream: in `streams` by name, else `default`."""

    default: OffsetSpec
    streams: Mapping[str, OffsetSpec]

    def of(self, name: str) -> OffsetSpec:
        """Return the bound of the stream of that name."""
        return self.streams.get(name, self.default)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one query. It names streams that have to exist, has a `pattern`, or names a `sharded` stream."""

    names: tuple[str, ...]
    pattern: str | None
    sharded: str | None
    vhost: str
    incarnation: Incarnation | None
    columns: tuple[str, ...]
    start: Bound
    end: Bound
    min_partitions: int
    max_records: int | None
    max_bytes: int | None
    fail_on_data_loss: bool
    push_filters: bool
    counts: bool
    location: ArchiveLocation

    @classmethod
    def parse(cls, given: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> Self:
        """Parse the options. Raises InvalidInputError, naming the option."""
        options: dict[str, str] = {}
        if _OF_A_TABLE in given:
            raise InvalidSettingError("CREATE TABLE", f"{_NO_TABLE}: {_A_VIEW}")
        for key, value in given.items():
            name = _BY_LOWER_CASE.get(key.lower())
            if name is None:
                raise InvalidSettingError(f"option {key[:80]!r}", f"is not one of {', '.join(NAMES)}")
            options[name] = value
        names, pattern = _streams(options)
        sharded = options.get("shardedStream")
        if sharded is not None:
            _check_bounds_of_sharded(options)
        vhost = options.get("vhost", "/")
        check_name("option vhost", vhost)
        incarnation = options.get("incarnation")
        if incarnation is not None and len(names) != 1:
            raise InvalidSettingError("option incarnation", "is for one stream, which the option stream names")
        start, end = _bound(options, "starting", names), _bound(options, "ending", names)
        for name in names or ("",):
            _check_order(start.of(name), end.of(name))
        return cls(
            names=names,
            pattern=pattern,
            sharded=sharded,
            vhost=vhost,
            incarnation=None if incarnation is None else checked_incarnation(incarnation),
            columns=_columns(options.get("columns"), COLUMNS if sharded is None else COLUMNS + SHARD_COLUMNS),
            start=start,
            end=end,
            min_partitions=_number(options, "minPartitions") or 1,
            max_records=_number(options, "maxRecordsPerTrigger"),
            max_bytes=_number(options, "maxBytesPerTrigger"),
            fail_on_data_loss=_truth(options, "failOnDataLoss", default="true"),
            push_filters=_push_filters(options.get("pushFilters", "false")),
            counts=_counts(options),
            location=ArchiveLocation.of(options, environment),
        )


def _streams(options: Mapping[str, str]) -> tuple[tuple[str, ...], str | None]:
    which = [name for name in _WHICH_STREAMS if name in options]
    if not options:
        raise InvalidSettingError("options", f"there are none; for a table, {_NO_TABLE}: {_A_VIEW}")
    if len(which) != 1:
        raise InvalidSettingError(f"options {', '.join(_WHICH_STREAMS)}", f"one of them is needed, not {len(which)}")
    (name,) = which
    text = options[name]
    match name:
        case "stream":
            names: tuple[str, ...] = (text,)
        case "streams":
            names = _list(name, text)
        case "shardedStream":
            check_name("option shardedStream", text)
            return (), None
        case "superStream":
            check_name("option superStream", text)
            return (), f"{re.escape(text)}-[0-9]+"
        case _:
            try:
                re.compile(text)
            except re.error as err:
                raise InvalidSettingError("option streamPattern", f"is not a regular expression: {err}") from err
            return (), text
    for one in names:
        check_name(f"option {name}", one)
    return names, None


def _list(name: str, text: str) -> tuple[str, ...]:
    """Parse names between commas, or in a JSON array if they contain commas; no name may come twice."""
    if text.lstrip().startswith("["):
        found = _json(name, text)
        if not all(isinstance(one, str) for one in found):
            raise InvalidSettingError(f"option {name}", "is not an array of text")
    else:
        found = [one.strip() for one in text.split(",")]
    if not found or len(set(found)) != len(found):
        raise InvalidSettingError(f"option {name}", f"{text[:80]!r} names nothing, or something twice")
    return tuple(found)


def _columns(text: str | None, known: tuple[str, ...]) -> tuple[str, ...]:
    if text is None:
        return known
    columns = _list("columns", text)
    unknown = [column for column in columns if column not in known]
    if unknown:
        raise InvalidSettingError("option columns", f"{unknown[0][:80]!r} is not one of {', '.join(known)}")
    return columns


def _bound(options: Mapping[str, str], which: str, names: tuple[str, ...]) -> Bound:
    """Parse `startingOffsets`, `startingOffset` and `startingTimestamp`, or those of the end."""
    offsets, offset, timestamp = (f"{which}{kind}" for kind in ("Offsets", "Offset", "Timestamp"))
    known = {"earliest": FIRST, "latest": NEXT} if which == "starting" else {"latest": NEXT}
    text = options.get(offsets)
    mode = {"offset": offset, "timestamp": timestamp}.get(text or "")
    given = [name for name in (offsets, offset, timestamp) if name in options]
    if mode is not None and mode not in options:
        raise InvalidSettingError(f"option {mode}", f"is missing, and {offsets} is {text!r}")
    if len(given) > (1 if mode is None else 2):
        raise InvalidSettingError(f"options {', '.join(given)}", "exclude each other")
    streams: Mapping[str, OffsetSpec] = {}
    if offset in options:
        default: OffsetSpec = _offset(offset, options[offset])
    elif timestamp in options:
        try:
            default = AtTimestamp(parse_timestamp(options[timestamp]))
        except ValueError as err:
            raise InvalidSettingError(f"option {timestamp}", str(err)) from err
    elif text is None:
        default = FIRST if which == "starting" else NEXT
    elif text.lstrip().startswith("{"):
        default = FIRST if which == "starting" else NEXT
        streams = {name: _offset(offsets, value, known) for name, value in _json(offsets, text).items()}
        unknown = [name for name in streams if names and name not in names]
        if unknown:
            raise InvalidSettingError(f"option {offsets}", f"{unknown[0][:80]!r} is not a stream of this query")
    else:
        default = _offset(offsets, text, known)
    return Bound(default, streams)


def _offset(name: str, value: object, known: Mapping[str, OffsetSpec] | None = None) -> OffsetSpec:
    words = known or {}
    if isinstance(value, str) and value in words:
        return words[value]
    text = value.strip() if isinstance(value, str) else str(value)
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()):
        raise InvalidSettingError(f"option {name}", f"{text[:80]!r} is not {', '.join((*words, 'an offset'))}")
    try:
        return AtOffset(Offset(int(text)))
    except (InvalidQueryError, ValueError) as err:
        raise InvalidSettingError(f"option {name}", f"{text[:80]!r} is not an offset") from err


def _check_bounds_of_sharded(options: Mapping[str, str]) -> None:
    for name in ("startingOffset", "endingOffset", "startingOffsets", "endingOffsets"):
        if options.get(name, "latest") not in {"earliest", "latest", "timestamp"}:
            raise InvalidSettingError(
                f"option {name}", "means nothing in a sharded stream, where each partition counts its own: give a time"
            )


def _check_order(start: OffsetSpec, end: OffsetSpec) -> None:
    match start, end:
        case AtOffset(first), AtOffset(last):
            is_wrong = first > last
        case AtTimestamp(first), AtTimestamp(last):
            is_wrong = first > last
        case _:
            is_wrong = False
    if is_wrong:
        raise InvalidSettingError("options of where to begin and end", f"{start} is after {end}")


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as err:
        raise InvalidSettingError(f"option {name}", f"{text[:80]!r} is not JSON") from err


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18 and int(text) > 0):  # noqa: PLR2004  (of 64 bits)
        raise InvalidSettingError(f"option {name}", f"{text[:80]!r} is not a number of at least 1")
    return int(text)


def _push_filters(text: str) -> bool:
    if text.lower() not in {"false", ONE_SCAN}:
        raise InvalidSettingError(
            "option pushFilters",
            f"{text[:80]!r} is neither false nor {ONE_SCAN}: if a DataFrame or view is scanned more than once, in one"
            " query or in several, Spark leaves out rows",
        )
    return text.lower() == ONE_SCAN


def _counts(options: Mapping[str, str]) -> bool:
    counts = _truth(options, "counts", default="false")
    excluded = [name for name in ("columns", "pushFilters") if name in options]
    if counts and excluded:
        raise InvalidSettingError(f"option {excluded[0]}", "is about messages, and counts gives a row a fragment")
    return counts


def _truth(options: Mapping[str, str], name: str, *, default: str) -> bool:
    text = options.get(name, default).lower()
    if text not in {"true", "false"}:
        raise InvalidSettingError(f"option {name}", f"{text[:80]!r} is neither true nor false")
    return text == "true"
