"""`WalOptions`: when a writer sends what is queued, and how long it tries."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.errors import InvalidSettingError
from coldstream.store.wal_window import MAX_IN_FLIGHT
from coldstream.units import MIB

_LARGEST_IN_FLIGHT_BYTES = 256 * MIB
_LONGEST_S = 60.0


@dataclass(frozen=True, slots=True)
class WalOptions:
    """Settings of group commit. All streams of a process share its write-ahead log, and what follows from these.

    An object is sent as soon as one of three holds: `max_bytes` are queued, the oldest chunk has been queued for
    `interval_s` seconds, or, if `eager`, nothing is in flight. At most `in_flight` objects, 1 to 16, are sent and not
    yet acknowledged; the next one waits for the oldest of them.

    Each object is one PUT, at $5 a million in S3 Standard. A process that appends all the time sends at most
    1/`interval_s` of them a second for its age, one for each `max_bytes`, and, if eager, one each time that a PUT
    returns. With a PUT of 30 ms that is up to 33 a second, $430 a month, and the lowest latency. Not eager, at 0.1 s,
    it is 10 a second, $130 a month, and an append waits 50 ms longer on average; at 1 s it is $13. What is idle sends
    nothing.

    The bodies of PUTs under way are memory beside the client's budget: `in_flight` times `max_bytes`, 16 MiB by default
    and 256 MiB at most, or `in_flight` of the largest batches, 16 MiB each, if these are larger.

    A PUT is tried `attempts` times, with growing random delays of at most `max_delay_s` seconds between them, beside
    the retries of the store itself. Then the writer seals its own WAL, and goes on in another one.
    """

    max_bytes: int = 4 * MIB
    interval_s: float = 0.1
    eager: bool = True
    in_flight: int = 4
    attempts: int = 6
    max_delay_s: float = 2.0

    def __post_init__(self) -> None:
        _check("interval_s", self.interval_s, 0, _LONGEST_S)
        _check("in_flight", self.in_flight, 1, MAX_IN_FLIGHT)
        _check("max_bytes", self.max_bytes, 1, _LARGEST_IN_FLIGHT_BYTES // self.in_flight)
        _check("attempts", self.attempts, 1, 100)
        _check("max_delay_s", self.max_delay_s, 0, _LONGEST_S)


def _check(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InvalidSettingError(name, f"{value} is not between {least} and {most}")
