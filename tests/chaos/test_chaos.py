"""The whole thing under fire, for a short while; `python -m tests.chaos.soak` goes on for longer, with other seeds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import run
from tests.support.broker import find_rabbitmq
from tests.support.fixtures import do_without

pytestmark = pytest.mark.broker

SEED = 4
SECONDS = 40


def test_every_message_arrives_once_and_in_order_whatever_dies_meanwhile(tmp_path: Path) -> None:
    if find_rabbitmq() is None:
        do_without("RabbitMQ")
    summary = run(SEED, SECONDS, tmp_path, "--max-lag", "3s", say=print)
    assert summary.published > 1000
    assert summary.connections > 1
    assert summary.agent_starts > 1
    assert summary.requests["refused"] > 0
