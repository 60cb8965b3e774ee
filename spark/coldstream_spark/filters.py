"""The conditions of a query that Spark passes on, so that less is read.

Those on `offset` and `stream` are applied to each row, so Spark need not apply them again. Those on `chunk_timestamp`
only leave out chunks, so Spark has to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from coldstream.units import MAX_OFFSET, MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class ScanFilter:
    """Read offsets from `start` up to `end`, chunks from `earliest` to `latest`, and only `streams`, unless None."""

    start: int = 0
    end: int = MAX_OFFSET
    earliest: int = MIN_TIMESTAMP_MS
    latest: int = MAX_TIMESTAMP_MS
    streams: frozenset[str] | None = None

    def narrow(self, condition: Any) -> bool:
        """Take a `pyspark.sql.datasource.Filter` into account; return whether Spark need not apply it again.

        The kinds are known by the names of their classes: Spark 4.0 has none of these to import.
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
        # Both are rounded inwards: chunks have whole milliseconds, so none lies between.
        if kind in {"EqualTo", "GreaterThan", "GreaterThanOrEqual"}:
            self.earliest = max(self.earliest, -(-at_us // 1000))
        if kind in {"EqualTo", "LessThan", "LessThanOrEqual"}:
            self.latest = min(self.latest, at_us // 1000)
