"""Chaos for as long as one likes: `python -m tests.chaos.soak --minutes 10 --seed 1`. Exits with 1 when a run fails.

Runs of a few minutes follow one another, each with a seed of its own, with and without a max-lag, until the time is up.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.run import ChaosError, run

RUN_S = 180.0


def main() -> int:
    """Run until the time is up, or something fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first run; the next ones count on")
    parser.add_argument("--quiet", action="store_true", help="say how runs end, and not what happens in them")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    until = time.monotonic() + 60 * arguments.minutes
    seed = arguments.seed
    while (left := until - time.monotonic()) > 0 or seed == arguments.seed:
        seconds = min(RUN_S, max(left, 20.0))
        options = ("--max-lag", "3s") if seed % 2 else ()
        _say(f"seed {seed}, {seconds:.0f} s, agent {' '.join(options) or 'without a max-lag'}")
        with tempfile.TemporaryDirectory(prefix="coldstream-chaos-", ignore_cleanup_errors=True) as directory:
            try:
                summary = run(seed, seconds, Path(directory), *options, say=_nothing if arguments.quiet else _say)
            except ChaosError as err:
                _say(f"FAILED: {err}")
                for log in ("agent.log", "functions.log"):
                    _say(f"--- {log}\n{(Path(directory) / log).read_text()[-3000:]}")
                return 1
        _say(f"seed {seed} passed: {summary}")
        seed += 1
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201  that is what it is for


def _nothing(_: str) -> None:
    """Say nothing."""


if __name__ == "__main__":
    sys.exit(main())
