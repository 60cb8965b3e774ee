"""A run never uses more than its budget, and the runs of a pass together find what one run without a budget finds."""

from __future__ import annotations

import random
from itertools import count

import pytest

from coldstream.errors import InvalidSettingError
from coldstream.scrub.budget import Budget, BudgetSpentError, Meter
from coldstream.scrub.report import ScrubReport
from coldstream.units import MIB, ByteRange
from tests.support.archive import NOW, ChunkArchive, steady
from tests.support.scrubbing import control_of, damages, scrub


class CountedBytes(ChunkArchive):
    read_bytes = 0


def long_archive() -> ChunkArchive:
    archive = ChunkArchive()
    archive.objects.clock = lambda: NOW
    for first in range(0, 800, 10):
        archive.add(first, steady(5, first + 1000, first + 1005))
    control_of(archive).write_stream(archive.stream)
    for number, key in enumerate(sorted(archive.objects.objects)):
        if number % 9 == 4 and key.endswith(".fragment"):
            archive.objects.objects[key] += b"?"
    return archive


def requests_of(archive: ChunkArchive) -> int:
    return sum(archive.table.requests.values()) + sum(archive.objects.requests.values())


def test_no_run_sends_more_requests_than_its_budget_and_all_runs_together_find_everything() -> None:
    archive = long_archive()
    whole = scrub(archive)
    rng = random.Random(1)
    found: list[str] = []
    shares: list[float] = []
    for run in count():
        limit = rng.randrange(100, 140)
        before = requests_of(archive)
        report = scrub(archive, Budget(requests=limit), resume=run > 0)
        assert requests_of(archive) - before <= limit
        assert report.spent.requests >= requests_of(archive) - before
        found += [str(finding) for finding in report.findings]
        shares.append(report.position.share)
        if report.is_complete:
            break
        assert report.at == archive.stream.incarnation
    assert len(shares) > 1
    assert shares == sorted(shares)
    assert len(whole.findings) == 9
    assert found == [str(finding) for finding in whole.findings]
    assert report.position.counts == whole.position.counts
    assert report.position.findings == whole.position.findings
    assert report.position.fragments == whole.position.fragments == 80


def test_a_run_may_use_exactly_its_budget() -> None:
    archive = long_archive()
    needed = scrub(archive).spent.requests
    assert scrub(archive, Budget(requests=needed)).is_complete
    assert not scrub(archive, Budget(requests=needed - 1)).is_complete


def test_no_run_reads_more_bytes_than_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = long_archive()
    taken = 0
    original = archive.objects.get_range

    def get_range(key: str, byte_range: ByteRange, **options: str | None) -> object:
        nonlocal taken
        taken += len(byte_range)
        return original(key, byte_range, **options)

    monkeypatch.setattr(archive.objects, "get_range", get_range)
    report = scrub(archive, deep=True)
    assert taken == report.spent.data_bytes
    meter = Meter(Budget(data_bytes=MIB))
    meter.charge(1, MIB)
    with pytest.raises(BudgetSpentError):
        meter.charge(1, 1)
    assert meter.spent.data_bytes == MIB


def test_a_finished_pass_is_followed_by_a_new_one() -> None:
    archive = long_archive()
    first = scrub(archive, resume=True)
    again = scrub(archive, resume=True)
    assert first.position.fragments == again.position.fragments == 80
    assert damages(first) == damages(again)


def test_a_run_that_has_to_stop_saves_where_it_is() -> None:
    archive = long_archive()
    left = iter(range(60))
    report = scrub(archive, should_stop=lambda: next(left, None) is None)
    assert not report.is_complete
    rest: ScrubReport = scrub(archive, resume=True)
    assert rest.is_complete
    assert rest.position.fragments == 80
    assert len(rest.findings) < 9


def test_time_is_a_budget_too() -> None:
    ticks = count()
    meter = Meter(Budget(seconds=3), clock=lambda: next(ticks))
    meter.charge()
    meter.charge()
    with pytest.raises(BudgetSpentError):
        meter.charge()


@pytest.mark.parametrize(
    ("option", "budget"),
    [
        ("--max-requests", {"requests": 99}),
        ("--max-bytes", {"data_bytes": MIB - 1}),
        ("--max-seconds", {"seconds": 0.5}),
    ],
)
def test_a_budget_on_which_no_run_gets_on_is_refused(option: str, budget: dict[str, int]) -> None:
    with pytest.raises(InvalidSettingError, match=option):
        Budget(**budget)


def test_an_object_larger_than_the_budget_is_counted_as_unread_and_does_not_stop_the_pass() -> None:
    archive = ChunkArchive(message_bytes=20_000)
    archive.objects.clock = lambda: NOW
    archive.add(0, steady(30, 1000, 1005))
    control_of(archive).write_stream(archive.stream)
    report = scrub(archive, Budget(data_bytes=MIB), deep=True)
    assert report.is_complete
    assert (damages(report), report.position.unread) == ([], 1)
