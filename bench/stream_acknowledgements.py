"""Acknowledgements of direct streams, against the interval of the write-ahead log and a PUT."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.harness import percentile


@dataclass(frozen=True, slots=True)
class Acknowledgements:
    """What one round of acknowledgements gave, and what is aimed at.

    `put_ms` is the mean of a PUT, not its median: with a wait that is spread evenly over the interval, the median of an
    acknowledgement is half the interval and the mean of the rest.
    """

    interval_s: float
    p50_ms: float
    p99_ms: float
    put_ms: float

    @classmethod
    def of(cls, answer: Mapping[str, Any], *, interval_s: float) -> Acknowledgements:
        """Take the figures of a round."""
        latencies: list[float] = answer["latencies"]
        put_s = statistics.fmean(answer["puts"])
        return cls(interval_s, 1000 * percentile(latencies, 50), 1000 * percentile(latencies, 99), 1000 * put_s)

    @property
    def most_p50_ms(self) -> float:
        """Half the interval and 1.15 PUTs."""
        return 500 * self.interval_s + 1.15 * self.put_ms

    @property
    def most_p99_ms(self) -> float:
        """The interval and two PUTs."""
        return 1000 * self.interval_s + 2 * self.put_ms

    @property
    def share(self) -> float:
        """The larger share of what is aimed at, 1 at most if both are met."""
        return max(self.p50_ms / self.most_p50_ms, self.p99_ms / self.most_p99_ms)
