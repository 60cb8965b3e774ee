"""Weeks of reconnects, one seed after the other: `python -m tests.gateway.faults.soak --weeks 20 --seed 1`.

Every week has its own pace and length of retention, so that some consumers live in the archive and others never see it.
Exits with 1 at the first week that fails, and says which seed it was.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
import traceback

from tests.gateway.faults.opened import open_gateway
from tests.gateway.faults.week import Pace, run_week


def pace_of(seed: int) -> Pace:
    """Draw how much goes on in a week."""
    rng = random.Random(seed)
    return Pace(
        write_s=rng.choice((120, 300, 900)),
        archive_s=rng.choice((30, 300, 1200)),
        keep_chunks=rng.choice((3, 40, 400)),
        broker_restart_s=rng.choice((1, 8)) * 3600,
        leader_move_s=rng.choice((1, 6)) * 3600,
        cut_s=rng.choice((120, 1800)),
        stall_s=rng.choice((600, 3 * 3600)),
        failure_s=rng.choice((600, 4 * 3600)),
        forgotten_s=rng.choice((3600, 12 * 3600)),
    )


def main() -> int:
    """Run them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weeks", type=int, default=20)
    parser.add_argument("--days", type=float, default=7)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first week; the next ones count on")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    for seed in range(arguments.seed, arguments.seed + arguments.weeks):
        began = time.monotonic()
        try:
            result = run_week(open_gateway, seed=seed, days=arguments.days, pace=pace_of(seed))
        except BaseException:  # noqa: BLE001  whatever it is, the seed has to be told
            _say(f"FAILED: seed {seed}, {pace_of(seed)}\n{traceback.format_exc()}")
            return 1
        _say(f"seed {seed} passed in {time.monotonic() - began:.0f} s: {result}")
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201  that is what it is for


if __name__ == "__main__":
    sys.exit(main())
