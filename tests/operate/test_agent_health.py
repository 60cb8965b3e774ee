from __future__ import annotations

from typing import Any

import pytest

from coldstream.agent.monitor.status import AgentStatus
from coldstream.errors import UnavailableError
from coldstream.operate.agent_health import MAX_NAMED, STUCK_MS, agent_health
from coldstream.operate.diagnosis import ArchivePart, Diagnosis, DiagnosisVerdict
from coldstream.units import TimestampMs
from tests.support.agent_status import NOW, agent_status, stream_status

URL = "http://node-1:9478"


def health(status: AgentStatus, *, later_ms: int = 0) -> list[Diagnosis]:
    return list(agent_health(URL, lambda: status, TimestampMs(NOW + later_ms)))


def test_an_agent_that_keeps_up_is_well() -> None:
    (one,) = health(agent_status(stream_status(), stream_status(archived_to=1100)), later_ms=STUCK_MS)
    assert (one.part, one.verdict, one.todo) == (ArchivePart.AGENTS, DiagnosisVerdict.OK, None)
    assert one.found == "node-1: 2 streams, 1 of them not archived to the end"


def test_an_agent_that_does_not_answer_is_unknown() -> None:
    def ask() -> AgentStatus:
        raise UnavailableError("connection refused")

    (one,) = agent_health(URL, ask, NOW)
    assert (one.verdict, one.found) == (DiagnosisVerdict.UNKNOWN, "connection refused")


@pytest.mark.parametrize(
    ("fields", "verdict", "found"),
    [
        ({"retention_left_s": 1799.0}, DiagnosisVerdict.BAD, "the broker deletes in 1799 s what is not archived"),
        ({"retention_left_s": -5.0}, DiagnosisVerdict.BAD, "the broker deletes in 0 s what is not archived"),
        ({"oldest_unarchived_at": NOW - 481_000}, DiagnosisVerdict.WARN, "481 s behind, with a max-lag of 60 s"),
        ({"last_failure": "S3 does not answer"}, DiagnosisVerdict.WARN, "S3 does not answer"),
    ],
)
def test_a_stream_that_lags_or_fails_is_told(fields: dict[str, Any], verdict: DiagnosisVerdict, found: str) -> None:
    (one,) = health(agent_status(stream_status(**fields)))
    assert (one.verdict, one.found) == (verdict, f"node-1: orders in vhost /: {found}")
    assert one.todo == f"coldstream agent status --url {URL}"


def test_without_a_max_lag_no_stream_is_late() -> None:
    (one,) = health(agent_status(stream_status(oldest_unarchived_at=NOW - 86_400_000), max_lag_s=None))
    assert one.verdict is DiagnosisVerdict.OK


def test_an_agent_that_stands_still_or_has_problems_is_bad() -> None:
    found = health(agent_status(problems=("the disk is full",)), later_ms=STUCK_MS + 1)
    assert [one.verdict for one in found] == [DiagnosisVerdict.BAD] * 2
    assert "it stands still since" in found[0].found
    assert found[1].found == "node-1: the disk is full"


def test_of_many_streams_some_are_named_and_the_rest_is_counted() -> None:
    found = health(agent_status(*[stream_status(last_failure="refused")] * (MAX_NAMED + 7)))
    assert len(found) == MAX_NAMED + 1
    assert found[-1].found == "node-1: and 7 streams more of this kind"
