"""Files, links and room are tried, and nothing is left behind."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from coldstream.agent.monitor import check_disk as module
from coldstream.agent.monitor.check import Check, CheckOutcome
from coldstream.agent.monitor.check_disk import check_disk
from coldstream.agent.options import AgentOptions, SegmentSource
from coldstream.live.address import BrokerAddress


@pytest.fixture
def data(tmp_path: Path) -> Path:
    segment = tmp_path / "data" / "__orders_1763700000000000000" / f"{0:020}.segment"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b"OSIL")
    return tmp_path / "data"


def options(data: Path, state: Path, **settings: Any) -> AgentOptions:
    return AgentOptions(
        state=state, broker=BrokerAddress.from_uri("rabbitmq-stream://localhost"), data=data, **settings
    )


def outcomes(checks: list[Check]) -> list[CheckOutcome]:
    return [check.outcome for check in checks]


def everything(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*"))


def test_all_is_well_and_nothing_is_left_behind(data, tmp_path):
    before = everything(tmp_path)
    checks = check_disk(options(data, tmp_path / "a" / "state"))
    assert outcomes(checks) == [CheckOutcome.OK] * 4
    assert everything(tmp_path) == before
    assert next((data / "__orders_1763700000000000000").iterdir()).stat().st_nlink == 1


def test_without_a_segment_a_link_cannot_be_tried(tmp_path):
    (tmp_path / "data").mkdir()
    checks = check_disk(options(tmp_path / "data", tmp_path / "state"))
    assert outcomes(checks) == [CheckOutcome.OK, CheckOutcome.OK, CheckOutcome.UNKNOWN, CheckOutcome.OK]


def test_a_broker_that_never_had_a_stream_has_no_directory_of_them_yet(tmp_path):
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "quorum").mkdir()
    checks = check_disk(options(tmp_path / "node" / "stream", tmp_path / "state"))
    assert outcomes(checks) == [CheckOutcome.UNKNOWN, CheckOutcome.OK, CheckOutcome.UNKNOWN, CheckOutcome.OK]
    assert "first stream" in checks[0].advice


@pytest.mark.parametrize(
    ("error", "todo"), [(errno.EXDEV, "under the same mount"), (errno.EPERM, "user that owns the broker's files")]
)
def test_a_link_that_cannot_be_made_is_told_with_what_to_do(data, tmp_path, monkeypatch, error, todo):
    def refuse(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(module.os, "link", refuse)
    (check,) = [
        check for check in check_disk(options(data, tmp_path / "state")) if check.outcome is CheckOutcome.FAILED
    ]
    assert "linked" in check.what
    assert todo in str(check.advice)


def test_another_file_system_is_told_before_any_link_is_tried(data):
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == data.stat().st_dev:
        pytest.skip("this machine has no second file system to write to")
    (check,) = [check for check in check_disk(options(data, shm / "state")) if "linked" in check.what]
    assert check.outcome is CheckOutcome.FAILED
    assert "another file system" in check.finding


def test_a_directory_that_cannot_be_read_is_told(data, tmp_path, monkeypatch):
    def refuse(_: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(data))

    monkeypatch.setattr(Path, "iterdir", refuse)
    checks = check_disk(options(data, tmp_path / "state"))
    assert checks[0].outcome is CheckOutcome.FAILED
    assert "Permission denied" in checks[0].finding
    assert checks[2].outcome is CheckOutcome.UNKNOWN


def test_a_state_directory_that_cannot_be_written_to_is_told(data, tmp_path, monkeypatch):
    def refuse(**_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(module.tempfile, "TemporaryDirectory", refuse)
    assert check_disk(options(data, tmp_path / "state"))[1].outcome is CheckOutcome.FAILED


def test_an_agent_that_runs_is_told_and_not_disturbed(data, tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    with (state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "an agent runs on it now" in check_disk(options(data, state))[1].finding


@pytest.mark.parametrize(
    ("free_share", "settings", "todo"),
    [
        (0.01, {}, "add room"),
        (0.5, {"release_below_bytes": 600}, "pins would be released"),
        (0.5, {"release_below_bytes": 1000}, "more than the whole disk"),
    ],
)
def test_a_disk_with_too_little_room_is_told(data, monkeypatch, free_share, settings, todo):
    class Space:
        f_frsize, f_blocks, f_bavail = 1, 1000, int(free_share * 1000)

    monkeypatch.setattr(module.os, "statvfs", lambda _: Space)
    check = check_disk(options(data, data.parent / "state", **settings))[-1]
    assert check.outcome is CheckOutcome.FAILED
    assert todo in str(check.advice)


def test_by_the_protocol_no_broker_directory_is_needed_and_the_spool_needs_room(tmp_path, monkeypatch):
    wanted = AgentOptions(
        state=tmp_path,
        broker=BrokerAddress.from_uri("rabbitmq-stream://localhost"),
        source=SegmentSource.PROTOCOL,
        streams=(("/", "orders"),),
    )
    assert outcomes(check_disk(wanted)) == [CheckOutcome.OK] * 2

    class Space:
        f_frsize, f_blocks, f_bavail = 1, 2 << 30, 500 << 20

    monkeypatch.setattr(module.os, "statvfs", lambda _: Space)
    assert "--max-spool" in str(check_disk(wanted)[-1].advice)
