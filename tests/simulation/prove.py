"""Play seeds for as long as there is time, and say what happened in them.

python -m tests.simulation.prove --hours 1 --figures build/simulation.json
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections import Counter
from pathlib import Path

from tests.simulation.play import HOURS, play


def main() -> int:
    """Play; return 1 if a seed ended badly."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.prove", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0, help="of real time, at most")
    parser.add_argument("--seeds", type=int, help="at most so many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--virtual-hours", type=float, default=HOURS, help="of each play")
    parser.add_argument("--figures", type=Path, help="where to write figures, as one JSON object")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    until, began = time.monotonic() + 3600 * arguments.hours, time.process_time()
    figures: Counter[str] = Counter()
    failed: dict[int, str] = {}
    seed = arguments.first
    while time.monotonic() < until and (arguments.seeds is None or seed < arguments.first + arguments.seeds):
        try:
            figures.update(play(seed, arguments.virtual_hours).figures)
        except Exception as err:  # noqa: BLE001  whatever it is, the seed is told, and the others are played
            failed[seed] = f"{type(err).__name__}: {err}"
            print(f"seed {seed}: {failed[seed]}", file=sys.stderr)  # noqa: T201
        seed += 1
    told = {
        "first seed": arguments.first,
        "seeds": seed - arguments.first,
        "failed seeds": failed,
        "virtual hours of each": arguments.virtual_hours,
        "processor seconds": round(time.process_time() - began, 1),
        **figures,
    }
    if arguments.figures is not None:
        arguments.figures.parent.mkdir(parents=True, exist_ok=True)
        arguments.figures.write_text(json.dumps(told, indent=2) + "\n")
    print(json.dumps(told, indent=2))  # noqa: T201
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
