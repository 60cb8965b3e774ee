"""What a GiB that is appended to direct streams costs, in requests and in dollars. List prices of us-east-1."""

from __future__ import annotations

from dataclasses import dataclass

PUT_DOLLARS = 5 / 1e6
"""Of a PUT, and of what else is billed as one: DeleteObjects is a POST."""
WRITE_UNIT_DOLLARS = 0.625 / 1e6

FRAGMENTS_A_GIB = 16
WRITE_UNITS_A_FRAGMENT = 13
"""As docs/deploy.md counts them for a fragment of 64 MiB."""
DELETED_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Cost:
    """Requests to S3 for a GiB, all of the price of a PUT, and write units of the table."""

    requests: float
    write_units: float

    @property
    def dollars(self) -> float:
        """The cost of both."""
        return self.requests * PUT_DOLLARS + self.write_units * WRITE_UNIT_DOLLARS


def cost_of(wal_puts: float) -> Cost:
    """Return the cost of a GiB whose write-ahead log takes so many PUTs, with that of fragments and deletions."""
    deletions = wal_puts / DELETED_AT_ONCE
    return Cost(wal_puts + FRAGMENTS_A_GIB + deletions, FRAGMENTS_A_GIB * WRITE_UNITS_A_FRAGMENT)
