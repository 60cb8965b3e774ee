"""Play one seed again, and tell what happened: `python -m tests.simulation SEED [--hours H]`."""

from __future__ import annotations

import argparse

from tests.simulation.play import HOURS, play


def main() -> None:
    """Play."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--hours", type=float, default=HOURS, help="of virtual time")
    arguments = parser.parse_args()
    played = play(arguments.seed, arguments.hours)
    print("\n".join(played.told))  # noqa: T201
    print(played.figures)  # noqa: T201


main()
