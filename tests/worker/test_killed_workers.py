"""Worker processes are killed at random, two at work at once: every job goes on, and what comes of it is exact.

`make soak` kills more often: COLDSTREAM_KILLS, from COLDSTREAM_FIRST_SEED on.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.broker import find_rabbitmq
from tests.support.fixtures import do_without
from tests.worker.kill_world import KillWorld

pytestmark = [pytest.mark.broker, pytest.mark.server, pytest.mark.slow]

KILLS = int(os.environ.get("COLDSTREAM_KILLS", "8"))
FIRST_SEED = int(os.environ.get("COLDSTREAM_FIRST_SEED", "1"))


def test_jobs_go_on_exactly_whoever_is_killed(tmp_path: Path) -> None:
    if find_rabbitmq() is None:
        do_without("RabbitMQ")
    with KillWorld(tmp_path, FIRST_SEED) as world:
        world.kill_often(KILLS)
    print(world.figures.text())  # noqa: T201  for `make soak`
    assert world.figures.published > 10 * KILLS
    assert world.figures.takeovers > KILLS
