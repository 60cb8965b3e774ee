"""Members in processes of their own, at DynamoDB's API: one is killed, one stands still for longer than its lease."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coldstream.flow.boot_clock import boot_time_s

ROOT = Path(__file__).parents[2]
LEASE_S = 4.0
PARTITIONS = 4

pytestmark = pytest.mark.server


class Process:
    """A member's process, and the lines that it wrote."""

    def __init__(self, table: str, log: Path) -> None:
        self._log = log
        command = [sys.executable, "-m", "tests.support.group_process", table, str(LEASE_S), str(PARTITIONS)]
        with log.open("w") as output:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=output)

    def samples(self) -> list[tuple[float, int, int]]:
        """Return when it owned which partition in which epoch."""
        lines = self._log.read_text().rpartition("\n")[0].splitlines()
        return [(float(at), int(number), int(epoch)) for at, number, epoch in map(str.split, lines)]

    def owned(self, since: float) -> set[int]:
        return {number for at, number, _ in self.samples() if at >= since}

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


@contextmanager
def processes(table: str, directory: Path, count: int) -> Iterator[list[Process]]:
    started = [Process(table, directory / f"{number}.log") for number in range(count)]
    try:
        yield started
    finally:
        for one in started:
            one.end()


def wait_for_shares(alive: list[Process], timeout_s: float) -> float:
    """Wait until the living share all partitions between them, one owner each; return how long it took."""
    begun = boot_time_s()
    while boot_time_s() - begun < timeout_s:
        since = boot_time_s()
        time.sleep(0.5)
        owned = [one.owned(since) for one in alive]
        if sum(map(len, owned)) == PARTITIONS and max(map(len, owned)) - min(map(len, owned)) <= 1:
            return boot_time_s() - begun
    raise AssertionError(f"the partitions are not shared after {timeout_s} s: {[one.owned(begun) for one in alive]}")


def test_partitions_of_a_killed_and_of_a_stopped_process_go_to_others_and_never_have_two_owners(
    table_name: str, tmp_path: Path
) -> None:
    with processes(table_name, tmp_path, 3) as (a, b, c):
        wait_for_shares([a, b, c], 60)
        a.process.kill()
        # Two leases, as `GroupMember` promises, and some for a machine that is busy.
        wait_for_shares([b, c], 2 * LEASE_S + 10)
        b.process.send_signal(signal.SIGSTOP)
        stopped = boot_time_s()
        wait_for_shares([c], 2 * LEASE_S + 10)
        time.sleep(max(0.0, stopped + 1.5 * LEASE_S - boot_time_s()))
        b.process.send_signal(signal.SIGCONT)
        wait_for_shares([b, c], 60)
    samples = sorted(sample for one in (a, b, c) for sample in one.samples())
    assert max(epoch for _, _, epoch in samples) > 2
    latest: dict[int, int] = {}
    for at, number, epoch in samples:
        assert epoch >= latest.get(number, 0), f"partition {number} had an owner of epoch {epoch} at {at}, too"
        latest[number] = epoch
    # One epoch is one process's.
    owners: dict[tuple[int, int], set[int]] = {}
    for place, one in enumerate((a, b, c)):
        for _, number, epoch in one.samples():
            owners.setdefault((number, epoch), set()).add(place)
    assert {key: who for key, who in owners.items() if len(who) > 1} == {}
