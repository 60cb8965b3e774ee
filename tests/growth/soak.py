"""Growth for as long as one likes: `python -m tests.growth.soak --minutes 10 --seed 1`. Exits with 1 when a run fails.

Runs of a few minutes follow one another, each with a seed and a super stream of its own, until the time is up.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path

from tests.growth.run import GrowthError, run
from tests.support.broker import find_rabbitmq
from tests.support.releases import RELEASES
from tests.support.stock_producer import find_stream_client

RUN_S = 240.0


def main() -> int:
    """Run until the time is up, or something fails."""
    versions = {release.version: release for release in RELEASES}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first run; the next ones count on")
    parser.add_argument("--broker", choices=versions, default=RELEASES[0].version, help="release of RabbitMQ")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    release = versions[arguments.broker]
    if find_rabbitmq(release) is None or find_stream_client() is None:
        _say("RabbitMQ or the stream client for Java is missing: make broker newer-brokers emulators")
        return 1
    until = time.monotonic() + 60 * arguments.minutes
    seed = arguments.seed
    while (left := until - time.monotonic()) > 0 or seed == arguments.seed:
        seconds = min(RUN_S, max(left, 60.0))
        _say(f"seed {seed}, {seconds:.0f} s, RabbitMQ {release.version}")
        with tempfile.TemporaryDirectory(prefix="coldstream-growth-", ignore_cleanup_errors=True) as directory:
            try:
                summary = run(seed, seconds, Path(directory), release=release, say=_say)
            except GrowthError as err:
                _say(f"FAILED: {err}")
                for log in ("agent.log", "functions.log", "reader.log"):
                    _say(f"--- {log}\n{(Path(directory) / log).read_text()[-3000:]}")
                return 1
        _say(f"seed {seed} passed: {summary}")
        seed += 1
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201  that is what it is for


if __name__ == "__main__":
    sys.exit(main())
