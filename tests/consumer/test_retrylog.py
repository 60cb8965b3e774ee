"""An outage is logged once, and retried ever more slowly."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import pytest

from coldstream.consumer.retrylog import FIRST_DELAY_S, MAX_DELAY_S, RetryLog
from coldstream.errors import UnavailableError


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    taken: list[float] = []

    async def sleep(delay_s: float) -> None:
        taken.append(delay_s)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return taken


async def test_each_outage_and_each_recovery_is_logged_once(
    pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    retry_log = RetryLog("the broker")
    with caplog.at_level(logging.INFO):
        retry_log.recovered()
        for _ in range(2):
            for _ in range(3):
                await retry_log.pause(UnavailableError("it is away"))
            retry_log.recovered()
            retry_log.recovered()
    said = ["the broker: it is away; trying again", "the broker: it is back"]
    assert [record.getMessage() for record in caplog.records] == said * 2
    assert len(pauses) == 6


async def test_pauses_grow_up_to_a_bound_and_start_again_after_a_recovery(pauses: list[float]) -> None:
    retry_log = RetryLog("the broker")
    for _ in range(20):
        await retry_log.pause(UnavailableError("it is away"))
    assert FIRST_DELAY_S / 2 <= pauses[0] <= FIRST_DELAY_S
    assert all(later > 0.9 * earlier for earlier, later in pairwise(pauses[:6]))
    assert all(MAX_DELAY_S / 2 <= pause <= MAX_DELAY_S for pause in pauses[-5:])
    retry_log.recovered()
    await retry_log.pause(UnavailableError("it is away"))
    assert pauses[-1] <= FIRST_DELAY_S
