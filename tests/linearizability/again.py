"""Play one seed again, and tell its histories: python -m tests.linearizability.again 4711."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from tests.linearizability.play import Play
from tests.linearizability.porcupine import Checker


def main(seed: int) -> None:
    """Play a seed."""
    logging.disable(logging.CRITICAL)
    play = Play(seed)
    histories = play.run()
    with Checker(pages=Path.cwd()) as checker:
        for history in histories:
            for call in sorted(history.calls, key=lambda one: one.time):
                print(*(f"{name}={fact}" for name, fact in call.facts.items() if fact is not None))  # noqa: T201
            print(checker.check(history))  # noqa: T201
    print(dict(play.counts))  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]))
