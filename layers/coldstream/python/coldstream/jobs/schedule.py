"""Schedules: when a job runs again. `every 6h`, or cron's minute, hour, day, month and day of the week, in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from cronsim import CronSim, CronSimError

from coldstream.errors import InvalidInputError
from coldstream.units import TimestampMs, parse_duration

LEAST_EVERY_S = 60
MAX_SET_BACK_MS = 600_000
_EVERY = "every "
_CRON_FIELDS = 5


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a job runs again: so many milliseconds after its last run began, or at the times of a line of cron."""

    text: str
    every_ms: int | None

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Read a schedule. Raises InvalidInputError."""
        stripped = " ".join(text.split())
        if stripped.startswith(_EVERY):
            try:
                every_s = parse_duration(stripped.removeprefix(_EVERY))
            except ValueError as err:
                raise InvalidInputError("schedule", str(err)) from err
            if every_s < LEAST_EVERY_S:
                raise InvalidInputError("schedule", f"{text[:80]!r} is more often than every minute")
            return cls(stripped, round(every_s * 1000))
        try:
            # cronsim takes six fields, too: seconds come first then.
            if len(stripped.split()) != _CRON_FIELDS:
                raise InvalidInputError("schedule", f"{text[:80]!r} is neither `every 6h` nor the five fields of cron")
            next(CronSim(stripped, datetime(2026, 1, 1, tzinfo=UTC)))
        except (CronSimError, StopIteration) as err:
            raise InvalidInputError("schedule", f"{text[:80]!r} is no line of cron that ever comes: {err}") from err
        return cls(stripped, None)

    def first_after(self, now: TimestampMs) -> TimestampMs:
        """Return when the first run is due: at once, or at the first time of a line of cron."""
        return now if self.every_ms is not None else self.next_after(now, now)

    def next_after(self, began: TimestampMs, now: TimestampMs) -> TimestampMs:
        """Return when the run after one that began then is due: later than `now`, so runs that were missed are one.

        A clock that was set back by a little brings no run twice. One that was far ahead does not put off the next.
        """
        if began - now > MAX_SET_BACK_MS:
            began = now
        if self.every_ms is not None:
            missed = max(0, (now - began) // self.every_ms)
            return TimestampMs(began + (missed + 1) * self.every_ms)
        moment = next(CronSim(self.text, datetime.fromtimestamp(max(began, now) / 1000, UTC)))
        return TimestampMs(round(moment.timestamp() * 1000))
