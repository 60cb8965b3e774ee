"""Play runs once more: python -m tests.faults.again SEED…"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from tests.faults.faulty_world import Worlds
from tests.faults.judge import FaultJudge


def main(seeds: Iterable[int]) -> None:
    """Say what each run is, and play it; it raises what is wrong."""
    worlds = Worlds()
    judge = FaultJudge(worlds)
    for seed in seeds:
        scenario, faults = judge.of_seed(seed)
        sys.stderr.write(f"{seed}: {scenario.name}, {faults}\n")
        judge.play(scenario, faults)
    worlds.close()


if __name__ == "__main__":
    main(map(int, sys.argv[1:]))
