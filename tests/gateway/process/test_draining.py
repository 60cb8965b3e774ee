"""How connections are let go, on a clock that jumps."""

from __future__ import annotations

import asyncio

import pytest

from coldstream.gateway.cold import ColdRow
from coldstream.gateway.process.draining import STEP_S, drain, goodbyes_due
from tests.gateway.faults.virtual_time import run_virtually

DRAIN_S = 30.0


class SlowClients:
    """A server whose clients take `takes_s` to go once they are told. `told` has when that was, since it drains."""

    def __init__(self, connections: int, takes_s: float | None) -> None:
        self.open_connections = self.untold = connections
        self.takes_s = takes_s
        self.is_listening = True
        self.told: list[float] = []

    def stop_listening(self) -> None:
        self.is_listening = False
        self.began = asyncio.get_running_loop().time()

    def close_some(self, count: int) -> None:
        assert not self.is_listening
        assert count > 0
        loop = asyncio.get_running_loop()
        for _ in range(min(count, self.untold)):
            self.untold -= 1
            self.told.append(loop.time() - self.began)
            if self.takes_s is not None:
                loop.call_later(self.takes_s, self.gone)

    def gone(self) -> None:
        self.open_connections -= 1

    def reload(self) -> None:
        raise NotImplementedError

    def coldest(self, count: int) -> tuple[ColdRow, ...]:
        raise NotImplementedError

    async def archive_problem(self) -> str | None:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError


def drained(served: SlowClients) -> float:
    """Return how long it took."""

    async def main() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await drain(served, DRAIN_S)
        return loop.time() - began

    return run_virtually(main())


def test_the_only_client_is_told_at_once() -> None:
    served = SlowClients(1, takes_s=0.05)
    assert drained(served) <= 2 * STEP_S
    assert served.told == [0.0]


@pytest.mark.parametrize("takes_s", [0.0, 4.0])
def test_clients_are_told_evenly_over_half_of_the_time_however_long_they_take_to_go(takes_s: float) -> None:
    served = SlowClients(3_000, takes_s)
    assert drained(served) == pytest.approx(DRAIN_S / 2 + takes_s, abs=3 * STEP_S)
    assert len(served.told) == 3_000
    for second in range(15):
        assert sum(second <= at < second + 1 for at in served.told) == pytest.approx(200, abs=45)


def test_what_does_not_go_is_left_at_the_end() -> None:
    served = SlowClients(3, takes_s=None)
    assert drained(served) == pytest.approx(DRAIN_S, abs=STEP_S)
    assert (served.open_connections, len(served.told)) == (3, 3)


def test_who_comes_out_of_a_handshake_while_it_drains_is_told_too() -> None:
    served = SlowClients(1, takes_s=0.0)

    async def main() -> None:
        draining = asyncio.create_task(drain(served, DRAIN_S))
        await asyncio.sleep(0)
        served.open_connections += 1
        served.untold += 1
        await draining

    run_virtually(main())
    assert (served.open_connections, len(served.told)) == (0, 2)


def test_without_connections_it_is_over() -> None:
    assert drained(SlowClients(0, takes_s=0.0)) == 0.0


@pytest.mark.parametrize(
    ("passed_s", "due"), [(0.0, 1), (0.1, 1), (7.4, 5), (7.5, 6), (14.9, 10), (15.0, 10), (40.0, 10)]
)
def test_the_first_is_due_at_once_and_the_last_in_the_middle(passed_s: float, due: int) -> None:
    assert goodbyes_due(10, passed_s, DRAIN_S) == due
    assert goodbyes_due(10, passed_s, 0.0) == 10
