from __future__ import annotations

import pytest

from coldstream.errors import UnavailableError
from coldstream.gateway.process.channel import ChildReport
from coldstream.gateway.process.status import GatewayStatus, ProcessStatus
from tests.support.gateway_status import gateway_status


def test_a_status_is_the_same_after_json() -> None:
    status = gateway_status(problems=("the broker doesn't answer: заказы",), is_draining=True)
    assert GatewayStatus.from_json(status.to_json(), source="here") == status


def test_totals_have_those_that_have_ended_and_the_lag_is_the_greatest() -> None:
    figures = gateway_status().figures()
    assert (figures.takeovers_total, figures.connections, figures.lag_offsets) == (14, 3, 700)
    assert figures.memory_budget_bytes == 256 << 20


def test_the_coldest_subscriptions_of_all_processes_come_first() -> None:
    assert [row.behind for row in gateway_status().coldest(1)] == [700]


@pytest.mark.parametrize(
    ("is_listening", "silent_s", "state"),
    [(True, 9.9, "serves"), (False, 9.9, "starts"), (True, 10.0, "silent for 10 s"), (False, 34.2, "silent for 34 s")],
)
def test_a_process_that_says_nothing_serves_nobody(*, is_listening: bool, silent_s: float, state: str) -> None:
    found = ProcessStatus(0, 17, is_listening, silent_s, ChildReport())
    assert (found.state, found.is_serving) == (state, state == "serves")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"version": 1}', b"\xff", b"null"])
def test_an_answer_of_something_else_names_who_gave_it(body: bytes) -> None:
    with pytest.raises(UnavailableError, match="http://here doesn't answer as a gateway"):
        GatewayStatus.from_json(body, source="http://here")
