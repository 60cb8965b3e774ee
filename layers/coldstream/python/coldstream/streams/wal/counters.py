"""What a writer counts: the source of its metrics."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

LATENCY_BOUNDS_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Upper bounds of the histogram of latencies, in seconds; what is above the last has a bucket of its own."""


@dataclass(slots=True)
class LatencyHistogram:
    """How many latencies lie up to each bound. `counts` are not cumulative, one for each bound and one above."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    sum_s: float = 0.0

    def observe(self, latency_s: float) -> None:
        """Count one more."""
        self.counts[bisect_left(LATENCY_BOUNDS_S, latency_s)] += 1
        self.sum_s += latency_s

    @property
    def count(self) -> int:
        """How many there are in all."""
        return sum(self.counts)


@dataclass(slots=True)
class WalCounters:
    """Counts of a client since its first WAL began: they go on when it goes on in another WAL. Metrics show them.

    `wals` were begun; all but the last were sealed, or given up, `abandoned` of them with no seal. `puts` are PUTs
    sent, `retries` those of them that repeat one, `put_bytes` what they carried. `collisions` are PUTs that met
    another's object. `objects` and `chunks` were acknowledged, `trimmed` objects deleted. `ack` holds how long chunks
    took from `submit` to their acknowledgement.
    """

    wals: int = 0
    abandoned: int = 0
    puts: int = 0
    put_bytes: int = 0
    retries: int = 0
    collisions: int = 0
    objects: int = 0
    chunks: int = 0
    trimmed: int = 0
    ack: LatencyHistogram = field(default_factory=LatencyHistogram)
