"""The clock of leases: seconds that pass also while the machine is suspended, and that nobody sets."""

from __future__ import annotations

import time

# A monotonic clock stands still while a laptop or a virtual machine is suspended: a member that wakes up would believe
# in a lease that the others have seen end. Linux has a clock that goes on; where there is none, leases are only as good
# as the monotonic one.
_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_time_s() -> float:
    """Return the seconds since some moment in the past. They pass also in suspension; no step of the date shows."""
    return time.clock_gettime(_CLOCK)
