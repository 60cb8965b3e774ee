"""Ways in which a store misbehaves, at the requests of commands and functions: no wrong byte, no lost offset.

CI plays a slice, `python -m tests.faults.prove` far more; a failure there names its seed, and `python -m
tests.faults.again SEED` plays it once more.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from uuid import uuid4

import pytest

from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from coldstream.units import ByteRange
from tests.faults.direct_acts import append, find_appended
from tests.faults.fault_acts import Outcome
from tests.faults.fault_kinds import FaultKind
from tests.faults.fault_scenarios import SCENARIOS
from tests.faults.faulty_world import BUCKET, Worlds
from tests.faults.judge import FaultJudge, Faults, FaultyRunError, check_outcome
from tests.faults.prove import groups, main
from tests.faults.same_ids import same_ids
from tests.faults.slice import ONCE_WRONG, runs_of_slice


@pytest.fixture(scope="module")
def judge() -> Iterator[FaultJudge]:
    worlds = Worlds()
    yield FaultJudge(worlds)
    worlds.close()


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_no_run_shows_a_wrong_byte_or_loses_an_offset_and_errors_name_the_place(judge):
    kinds = set()
    for scenario, all_faults in groupby(
        runs_of_slice(lambda scenario: judge.expected(scenario).sites), key=itemgetter(0)
    ):
        for end in judge.play_all(scenario, [faults for _, faults in all_faults]):
            assert end.wrong is None
            assert end.struck, f"{end.faults} struck nothing"
            kinds.add(end.faults.kind)
    assert kinds == set(FaultKind)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("name", "faults"), ONCE_WRONG, ids=str)
def test_what_was_wrong_once_is_right(judge, name, faults):
    assert judge.play(SCENARIOS[name], faults)


def test_seeds_come_to_every_call_site_with_every_kind(judge, monkeypatch):
    few = {name: SCENARIOS[name] for name in ("read", "upload")}
    monkeypatch.setattr("tests.faults.judge.SCENARIOS", few)
    most = max(len(judge.expected(scenario).sites.pairs()) for scenario in few.values())
    seeds = range(len(few) * most)
    runs = [judge.of_seed(seed) for seed in seeds]
    assert {(scenario.name, faults.site, faults.kind) for scenario, faults in runs} == {
        (name, *pair) for name, scenario in few.items() for pair in judge.expected(scenario).sites.pairs()
    }
    assert runs == [judge.of_seed(seed) for seed in seeds]


def test_no_call_site_is_struck_again_by_a_kind_before_each_was_by_each(monkeypatch):
    monkeypatch.setattr("tests.faults.prove.SCENARIOS", {"small": None, "large": None, "broken": None})
    known: dict[str, int] = {}
    seen: dict[str, list[int]] = {"small": [], "large": [], "broken": []}
    seeds = []
    for group in groups(100, 3000, known.get):
        (number,) = {seed % 3 for seed in group}
        name = list(seen)[number]
        seen[name] += group
        seeds += group
        known.update(small=5, large=40, broken=0)
        if len(seen["large"]) < 40:
            assert len(seen["small"]) <= 5
            assert len(seen["broken"]) <= 4
    assert sorted(seeds) == list(range(100, 3100))
    assert [seed // 3 for seed in seen["large"]] == sorted(seed // 3 for seed in seen["large"])


def test_ids_are_the_same_in_each_run_and_others_within_one():
    def draw() -> list[object]:
        with same_ids("a run"):
            return [secrets.token_hex(8), secrets.token_hex(8), uuid4(), secrets.randbits(48)]

    first = draw()
    assert draw() == first
    assert first[0] != first[1]
    with same_ids("a run"):
        uuid4()
        assert secrets.token_hex(8) == first[0]
    assert secrets.token_hex(8) != secrets.token_hex(8) != first[0]


def test_a_proof_tells_what_it_struck_and_what_it_did_not(tmp_path, monkeypatch):
    few = {"quarantine": SCENARIOS["quarantine"]}
    for module in ("judge", "prove"):
        monkeypatch.setattr(f"tests.faults.{module}.SCENARIOS", few)
    monkeypatch.setattr("tests.faults.slice.SLICE", ("quarantine",))
    assert main(["--runs", "2", "--figures", str(tmp_path / "figures")]) == 0
    figures = json.loads((tmp_path / "figures").read_text())
    assert figures["runs"] == figures["runs whose fault took effect"] == 2
    assert figures["call sites by kinds that were struck"] == 2
    assert figures["call sites by kinds that take effect there"] < len(FaultKind) * figures["call sites"]
    assert figures["operations that the slice in CI leaves out"] == []


class _Anything(int):
    """A checksum that is whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


def test_wrong_bytes_that_nobody_checks_are_found(judge, monkeypatch):
    read = SCENARIOS["read"]

    def play() -> None:
        for nth in judge.expected(read).sites.turns("GET data", FaultKind.WRONG_BYTES):
            judge.play(read, Faults(FaultKind.WRONG_BYTES, "GET data", nth, lasts=True))

    play()
    monkeypatch.setattr("coldstream.format.chunk.crc32", lambda data: _Anything())
    with pytest.raises(FaultyRunError):
        play()


def test_no_wrong_byte_of_a_note_is_believed(judge, monkeypatch):
    """A note has no checksum of its own: a letter of a stream's name that is another is a sound note."""
    faults = [Faults(FaultKind.WRONG_BYTES, "GET control/stream", 1, lasts=True, chance=byte) for byte in range(60)]

    def wrong() -> list[str]:
        ends = judge.play_all(SCENARIOS["rebuild"], faults)
        return [end.wrong for end in ends if end.wrong is not None]

    assert wrong() == []

    def read_by_a_range(objects: S3Objects, key: str, most_bytes: int) -> bytes:
        return objects.get_range(key, ByteRange(0, most_bytes)).data

    monkeypatch.setattr(S3Objects, "get_whole", read_by_a_range)
    assert wrong(), "the play sees no note that was believed"


@pytest.mark.parametrize(("name", "site"), [("read", "GET data"), ("read", "GET /ranges"), ("compact", "GetItem")])
def test_a_request_that_is_sent_elsewhere_may_be_made_again_later(judge, name, site):
    assert judge.play(SCENARIOS[name], Faults(FaultKind.REDIRECT, site, 0, lasts=True))


def test_a_job_whose_run_failed_goes_on_once_its_pause_is_over(judge):
    never = Faults(FaultKind.TIMEOUT_BEFORE, "POST data uploadId", 0, lasts=True)
    assert judge.play(SCENARIOS["worker with a compaction"], never)


def test_a_callers_500_is_right_where_aws_does_not_permit_it(judge):
    assert judge.play(SCENARIOS["API of messages"], Faults(FaultKind.DENIED, "GET data", 0, lasts=False))


def test_an_appender_waits_until_an_outage_ends(judge):
    lasting = Faults(FaultKind.PROXY_PAGE, "PUT data", 0, lasts=True)
    assert judge.play(SCENARIOS["appender of a direct stream"], lasting)


def test_an_offset_that_an_upload_loses_is_found(judge, monkeypatch):
    upload = SCENARIOS["upload"]
    judge.expected(upload)
    # Nothing is committed, and it is called done.
    monkeypatch.setattr(DynamoTable, "apply", lambda table, change: None)
    with pytest.raises(FaultyRunError):
        judge.play(upload, Faults(FaultKind.SLOW, "Query", 0, lasts=False))


def test_a_batch_that_was_acknowledged_and_is_not_there_is_found(judge):
    with judge.worlds.world() as world:
        assert append(world).problem is None
        assert find_appended(world).problem is None
        last = max(world.acknowledged)
        world.acknowledged[last + 1] = b"acknowledged, and never written"
        assert "never written" in (find_appended(world).problem or "")
        world.acknowledged = {last: b"another body"}
        assert "another body" in (find_appended(world).problem or "")


def test_an_error_that_does_not_name_the_place_is_found(judge):
    scenario = SCENARIOS["read"]
    expected = judge.expected(scenario)
    check_outcome(scenario, Outcome(b"", f"GET of {BUCKET}: no answer"), expected, "here")
    for outcome in (
        Outcome(b"", "something went wrong"),
        Outcome(b"", f"KeyError: {BUCKET}", is_typed=False),
        Outcome(b"another byte"),
        Outcome(b"another byte", f"GET of {BUCKET}: no answer"),
    ):
        with pytest.raises(FaultyRunError):
            check_outcome(scenario, outcome, expected, "here")
