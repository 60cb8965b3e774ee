"""What Spark passes on of a query's conditions, so that less is read.

Conditions on `offset` and `stream` are kept to the row, so Spark need not look again; those on `chunk_timestamp` to the
chunk, and Spark does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from coldstream.units import MAX_OFFSET, MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Wanted:
    """Offsets from `start` up to `end`, chunks of times from `earliest` to `latest`, streams of these names if any."""

    start: int = 0
    end: int = MAX_OFFSET
    earliest: int = MIN_TIMESTAMP_MS
    latest: int = MAX_TIMESTAMP_MS
    streams: frozenset[str] | None = None

    def narrow(self, condition: Any) -> bool:
        """Take a `pyspark.sql.datasource.Filter` into account; return whether all of it is, so nothing is left to do.

        Told apart by their names: Spark 4.0 has none of them.
        """
        kind, column = type(condition).__name__, ".".join(getattr(condition, "attribute", ()))
        value: Any = getattr(condition, "value", None)
        match column, kind:
            case "stream" | "offset", "IsNotNull":
                return True
            case "stream", "EqualTo":
                return self._name((value,))
            case "stream", "In":
                return self._name(value)
            case "offset", _ if isinstance(value, int):
                return self._offset(kind, value)
            case "chunk_timestamp", _ if isinstance(value, datetime):
                self._time(kind, value)
        return False

    def _name(self, names: Iterable[Any]) -> bool:
        found = frozenset(name for name in names if isinstance(name, str))
        self.streams = found if self.streams is None else self.streams & found
        return True

    def _offset(self, kind: str, value: int) -> bool:
        first = {"EqualTo": value, "GreaterThan": value + 1, "GreaterThanOrEqual": value}.get(kind)
        last = {"EqualTo": value + 1, "LessThan": value, "LessThanOrEqual": value + 1}.get(kind)
        if first is not None:
            self.start = max(self.start, first)
        if last is not None:
            self.end = min(self.end, max(last, 0))
        return first is not None or last is not None

    def _time(self, kind: str, value: datetime) -> None:
        moment = value.astimezone(UTC) - _EPOCH
        at_us = (moment.days * 86_400 + moment.seconds) * 1_000_000 + moment.microseconds
        if kind in {"EqualTo", "GreaterThan", "GreaterThanOrEqual"}:
            self.earliest = max(self.earliest, -(-at_us // 1000))
        if kind in {"EqualTo", "LessThan", "LessThanOrEqual"}:
            self.latest = min(self.latest, at_us // 1000)
