"""Leaders that move for as long as one likes: `python -m tests.gateway.faults.moving_soak --minutes 5 --release 4.0`.

A cluster is started once. Each round has a stream of its own, stock readers that begin in the archive, and a publisher;
nodes are killed or stopped and started again, and writers end, by chance. Exits with 1 at the first round that fails,
and says which seed it was.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
import traceback
from contextlib import ExitStack

from tests.gateway.faults.moving_scene import MovingScene
from tests.gateway.faults.restless_publisher import RestlessPublisher
from tests.gateway.faults.restless_reader import RestlessReader
from tests.support.cluster import Cluster
from tests.support.releases import RELEASES

FAULTS = 6
"""In a round."""
READ_ON = 400
"""Messages that each reader takes between two faults, if there are as many."""
PUBLISHED = 50


def play(cluster: Cluster, seed: int) -> str:
    """Play a round; return what happened."""
    dice = random.Random(seed)
    told: list[str] = []
    with MovingScene(cluster) as scene, ExitStack() as opening:
        ports = [scene.for_all.port] * 3 + [gateway.port for gateway in scene.beside.values()]
        readers = [
            opening.enter_context(RestlessReader(f"reader {number}", port, scene.stream))
            for number, port in enumerate(ports)
        ]
        publisher = opening.enter_context(RestlessPublisher(scene.for_all.port, scene.stream, first=scene.published))
        for number in range(1, FAULTS + 1):
            for reader in readers:
                reader.allow(number * READ_ON)
                reader.wait(min(number * READ_ON, scene.published))
            told.append(_strike(cluster, scene.stream, dice))
            publisher.wait_confirmed(PUBLISHED)
        publisher.stop()
        end = max(publisher.confirmed) + 1
        for reader in readers:
            reader.allow(2 * end)
            reader.wait(end)
            assert reader.numbers == list(range(len(reader.numbers))), f"{reader.name}: {reader.endings}"
            assert publisher.confirmed <= set(reader.numbers), reader.name
        assert not sum(scene.figures.gaps_total.values())
    return f"{', '.join(told)}; {end} messages, {sum(reader.sessions for reader in readers)} sessions"


def _strike(cluster: Cluster, stream: str, dice: random.Random) -> str:
    """Do something to the cluster, of whose nodes all run before and after."""
    what = dice.choice(("kill the leader", "stop the leader", "kill a follower", "end the writer"))
    if what == "end the writer":
        cluster.end_writer(stream)
        return what
    leader = cluster.settled_leader(stream)
    node = leader if what.endswith("leader") else dice.choice([one for one in cluster.nodes if one is not leader])
    if what.startswith("kill"):
        node.kill()
    else:
        node.stop()
    time.sleep(dice.random() * 3)
    node.start()
    cluster.wait_replicated(stream)
    return what


def main() -> int:
    """Play until the time is up, or something fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first round; the next ones count on")
    parser.add_argument("--release", choices=[one.version for one in RELEASES], default=RELEASES[0].version)
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    until = time.monotonic() + 60 * arguments.minutes
    seed = arguments.seed
    with Cluster(release=next(one for one in RELEASES if one.version == arguments.release)) as cluster:
        while time.monotonic() < until or seed == arguments.seed:
            began = time.monotonic()
            try:
                summary = play(cluster, seed)
            except BaseException:  # noqa: BLE001  whatever it is, the seed has to be told
                _say(f"FAILED: seed {seed}\n{traceback.format_exc()}")
                return 1
            _say(f"seed {seed} passed in {time.monotonic() - began:.0f} s: {summary}")
            seed += 1
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201  that is what it is for


if __name__ == "__main__":
    sys.exit(main())
