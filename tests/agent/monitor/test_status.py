from __future__ import annotations

import pytest

from coldstream.agent.monitor.status import AgentStatus
from coldstream.errors import UnavailableError
from tests.support.agent_status import NOW, ORDERS, agent_status, stream_status


def test_a_snapshot_comes_back_from_json_as_it_was() -> None:
    unnamed = stream_status(vhost=None, name=None, archived_to=None, oldest_unarchived_at=None, last_failure="no 注文")
    status = agent_status(stream_status(), unnamed, problems=("AWS does not answer",))
    assert AgentStatus.from_json(status.to_json(), source="here") == status


def test_members_of_a_newer_agent_are_passed_over() -> None:
    text = agent_status(stream_status()).to_json()
    newer = text.replace(b'"host"', b'"colour":"blue","host"').replace(b'"state":', b'"mood":1,"state":')
    assert AgentStatus.from_json(newer, source="here") == agent_status(stream_status())


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b"<html>", b'{"streams": 3}', b"\xff"])
def test_what_is_not_a_status_is_said_to_be_of_another_service(text: bytes) -> None:
    with pytest.raises(UnavailableError, match="http://node-1 answered what is not an agent's status"):
        AgentStatus.from_json(text, source="http://node-1")


@pytest.mark.parametrize(
    ("archived_to", "lag"),
    [(None, 1000), (50, 1000), (100, 1000), (101, 999), (1099, 1), (1100, 0), (2000, 0)],
)
def test_the_lag_is_what_is_on_disk_and_not_archived(archived_to: int | None, lag: int) -> None:
    assert stream_status(archived_to=archived_to).lag_offsets == lag


def test_the_lag_in_seconds_is_the_age_of_the_oldest_chunk_not_archived() -> None:
    assert stream_status().lag_s(NOW) == 90


def test_a_stream_archived_to_its_end_does_not_lag_whatever_its_age() -> None:
    assert stream_status(archived_to=1100).lag_s(NOW) == 0


def test_the_lag_in_seconds_is_unknown_with_the_age() -> None:
    assert stream_status(oldest_unarchived_at=None).lag_s(NOW) is None


def test_a_chunk_of_a_clock_ahead_of_ours_does_not_make_the_lag_negative() -> None:
    assert stream_status(oldest_unarchived_at=NOW + 5000).lag_s(NOW) == 0


def test_a_stream_without_names_is_labelled_by_its_directory() -> None:
    assert stream_status().labels == ("/", "orders")
    assert stream_status(vhost=None, name=None).labels == ("", ORDERS)
