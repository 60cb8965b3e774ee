"""What a preview says of each kind of job, held against what is archived, and that its work is bounded."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from coldstream.errors import InvalidInputError
from coldstream.jobs.job_cautions import cautions_of
from coldstream.jobs.preview import JobPreview, preview
from coldstream.jobs.preview_warning import WarningCode
from coldstream.jobs.specs import JobKind, ScrubSpec, parse_spec
from coldstream.lifecycle.deletion import delete_stream
from coldstream.lifecycle.holds import put_hold
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.policy import Policy
from coldstream.store.keys import Keys
from coldstream.store.prices import GB
from coldstream.units import MIB, Offset, TimestampMs, format_timestamp
from tests.jobs.test_specs import LEAST
from tests.support.previewing import SeveralStreams, at_hour

Previewed = Callable[..., JobPreview]
LATER = at_hour(1000)


@pytest.fixture
def archive() -> SeveralStreams:
    return SeveralStreams()


def previewed(archive: SeveralStreams, kind: str, now: TimestampMs = LATER, **fields: Any) -> JobPreview:
    return preview(archive.table, parse_spec({"kind": kind, **LEAST[JobKind(kind)], **fields}), now)


def codes(found: JobPreview) -> set[WarningCode]:
    return {warning.code for warning in found.warnings}


def test_all_of_a_stream_is_told_exactly(archive: SeveralStreams) -> None:
    archive.add("orders", 12)
    found = previewed(archive, "load")
    assert (found.messages, found.matched, found.is_cut, found.is_endless) == (120, 1, False, False)
    assert found.read_bytes == sum(map(len, archive.objects.objects.values()))
    (stream,) = found.streams
    assert (stream.first_offset, stream.next_offset, stream.is_estimate) == (0, 120, False)
    assert found.requests == 1 + 12  # a Query of the log, and a GET for each fragment
    assert 0 < found.usd < 0.01
    assert found.warnings == ()


def test_a_window_of_offsets_is_added_up_from_its_entries(archive: SeveralStreams) -> None:
    archive.add("orders", 12)
    found = previewed(archive, "load", start="20", end="45")
    (stream,) = found.streams
    assert (stream.first_offset, stream.next_offset, stream.messages) == (20, 45, 25)
    assert stream.is_estimate  # half of a fragment
    assert not previewed(archive, "load", start="20", end="40").streams[0].is_estimate


def test_a_window_of_times_becomes_offsets(archive: SeveralStreams) -> None:
    archive.add("orders", 12)
    found = previewed(archive, "export", start=format_timestamp(at_hour(3)), end=format_timestamp(at_hour(7)))
    assert (found.streams[0].first_offset, found.streams[0].next_offset) == (30, 70)
    relative = previewed(archive, "export", at_hour(8), start="-5h", end="-1h")
    assert relative.streams == found.streams


def test_a_time_inside_of_a_fragment_is_estimated_within_it(archive: SeveralStreams) -> None:
    archive.add("orders", 12)
    first = previewed(archive, "load", start=format_timestamp(at_hour(3.25))).streams[0]
    assert first.first_offset == 35
    assert first.is_estimate


def test_a_bound_that_is_a_time_costs_two_queries_at_most(archive: SeveralStreams) -> None:
    archive.add("orders", 12)
    archive.table.requests.clear()
    previewed(archive, "load", start=format_timestamp(at_hour(3)), end=format_timestamp(at_hour(7)))
    # The name costs a Query and a GetItem; the stream a GetItem, a Query of its window, and those of the bounds.
    assert archive.table.requests["GetItem"] == 2
    assert 2 + 2 <= archive.table.requests["Query"] <= 2 + 4


@pytest.mark.parametrize(("start", "end"), [("120", None), ("0", "0"), ("70", "40"), ("next", None)])
def test_an_empty_window_is_told(archive: SeveralStreams, start: str, end: str | None) -> None:
    archive.add("orders", 12)
    found = previewed(archive, "load", start=start, end=end)
    assert codes(found) == {WarningCode.EMPTY_WINDOW}
    assert (found.messages, found.read_bytes, found.usd) == (0, 0, 0.0)
    assert found.streams[0].first_offset is None


@pytest.mark.parametrize("end", ["500", format_timestamp(at_hour(50))])
def test_an_end_past_the_archive_is_told(archive: SeveralStreams, end: str) -> None:
    archive.add("orders", 12)
    found = previewed(archive, "load", end=end)
    assert codes(found) == {WarningCode.NOT_ARCHIVED_YET}
    assert found.messages == 120


def test_last_is_the_last_chunk(archive: SeveralStreams) -> None:
    archive.add("orders", 12)
    assert previewed(archive, "load", start="last").streams[0].first_offset == 115


def test_a_window_of_many_fragments_is_taken_in_proportion_without_reading_them(archive: SeveralStreams) -> None:
    archive.add("orders", 400)
    archive.table.requests.clear()
    found = previewed(archive, "load", start="1000")
    assert found.messages == 3000
    assert found.streams[0].is_estimate
    assert archive.table.requests == {"GetItem": 2, "Query": 2}


def test_gaps_in_the_window_are_told_and_others_are_not(archive: SeveralStreams) -> None:
    archive.add("orders", 12, without=(4, 9))
    found = previewed(archive, "load", end="80")
    (warning,) = found.warnings
    assert warning.code is WarningCode.GAPS
    assert warning.text.startswith("1 gaps of 10 offsets together")
    assert warning.stream == "orders"
    assert found.messages == 70


def test_cold_fragments_are_told(archive: SeveralStreams) -> None:
    archive.add("orders", 12, cold=(0, 1))
    found = previewed(archive, "load")
    assert codes(found) == {WarningCode.COLD}
    assert "2 of the oldest 12 fragments are in GLACIER" in found.warnings[0].text


def test_holds_are_told_to_whoever_removes(archive: SeveralStreams) -> None:
    stream = archive.add("orders", 12)
    stores = LifecycleStores.open(archive.table, archive.objects, Keys(), grace_ms=0)
    put_hold(stores, stream.incarnation, first_offset=Offset(0), next_offset=None, reason="suit", by="ann")
    assert WarningCode.HOLDS in codes(previewed(archive, "erase"))
    assert WarningCode.HOLDS in codes(previewed(archive, "compact"))
    assert codes(previewed(archive, "load", after_load="delete")) == {WarningCode.HOLDS, WarningCode.DELETES}
    assert codes(previewed(archive, "load")) == set()


def test_a_name_that_matches_nothing_is_told(archive: SeveralStreams) -> None:
    found = previewed(archive, "load", streams=["ordres"])
    assert [warning.text for warning in found.warnings] == ["'ordres' matches no archived stream of vhost '/'"]
    assert (found.matched, found.streams) == (0, ())


def test_a_deleted_stream_is_as_one_that_is_not_there(archive: SeveralStreams) -> None:
    stream = archive.add("orders", 3)
    stores = LifecycleStores.open(archive.table, archive.objects, Keys(), grace_ms=0)
    delete_stream(stores, stream.incarnation, by="ann", grace_ms=86_400_000)
    for streams in (["orders"], ["o*"], []):
        found = previewed(archive, "scrub", streams=streams)
        assert found.matched == 0
        assert codes(found) == {WarningCode.NOTHING_MATCHES}


def test_a_rate_tells_how_long_the_largest_stream_takes(archive: SeveralStreams) -> None:
    archive.add("a", 12)
    archive.add("b", 3)
    assert previewed(archive, "load", streams=["*"], rate=60).duration_s == 2.0
    assert previewed(archive, "load", streams=["*"]).duration_s is None


def test_many_streams_into_one_and_into_itself_are_told(archive: SeveralStreams) -> None:
    archive.add("orders", 1)
    archive.add("orders-again", 1)
    assert codes(previewed(archive, "load", streams=["orders*"])) == {WarningCode.MIXED, WarningCode.SAME_STREAM}
    elsewhere = {"type": "stream", "vhost": "other", "name": "orders"}
    assert codes(previewed(archive, "load", streams=["orders"], target=elsewhere)) == set()


def test_jobs_that_go_on_say_so(archive: SeveralStreams) -> None:
    archive.add("orders", 1)
    assert previewed(archive, "load", follow=True).is_endless
    assert previewed(archive, "scrub", schedule="every 6h").is_endless
    assert previewed(archive, "store").is_endless
    assert not previewed(archive, "store", end="100").is_endless
    assert codes(previewed(archive, "store")) == {WarningCode.BROKER}


def test_an_erasure_reads_the_offsets_that_it_is_for(archive: SeveralStreams) -> None:
    stream = archive.add("orders", 12)
    found = previewed(archive, "erase", offsets="15:25")
    assert (found.streams[0].first_offset, found.streams[0].next_offset) == (15, 25)
    assert codes(found) == {WarningCode.DELETES}
    assert previewed(archive, "erase", offsets="15:").streams[0].next_offset == 120
    assert previewed(archive, "erase", incarnation=stream.incarnation).matched == 1
    other = previewed(archive, "erase", incarnation="__orders_1")
    assert codes(other) == {WarningCode.DELETES, WarningCode.NOTHING_MATCHES}
    with pytest.raises(InvalidInputError, match="offsets"):
        previewed(archive, "erase", offsets=None)


def test_a_compaction_leaves_what_is_younger(archive: SeveralStreams) -> None:
    archive.add("orders", 12)
    assert previewed(archive, "compact", at_hour(12)).streams[0].next_offset == 110
    assert previewed(archive, "compact", at_hour(100)).messages == 120


def test_a_scrub_costs_more_if_it_reads_every_byte_and_tells_its_bounds(archive: SeveralStreams) -> None:
    archive.add("orders", 12)
    shallow, deep = previewed(archive, "scrub"), previewed(archive, "scrub", deep=True)
    assert shallow.warnings == deep.warnings == ()
    assert deep.read_bytes >= shallow.read_bytes
    archive.add("bills", 120)
    bounded = previewed(archive, "scrub", deep=True, max_requests=100)
    assert [warning.code for warning in bounded.warnings] == [WarningCode.BOUND]
    spec = ScrubSpec(kind=JobKind.SCRUB, max_read="1MiB")
    much = [replace(one, read_bytes=MIB) for one in bounded.streams]
    assert [warning.code for warning in cautions_of(spec, much)] == [WarningCode.BOUND]


def test_a_retention_tells_what_its_policy_lets_go(archive: SeveralStreams) -> None:
    archive.add("orders", 12)
    assert codes(previewed(archive, "retention", dry_run=True)) == {WarningCode.NO_POLICY}
    archive.table.put_policy(Policy("week", "*/*", max_age_ms=3_600_000 * 5))
    found = previewed(archive, "retention", at_hour(12))
    assert (found.streams[0].first_offset, found.streams[0].next_offset) == (0, 70)
    assert (found.messages, found.read_bytes) == (70, 0)
    assert codes(found) == {WarningCode.DELETES}
    young = previewed(archive, "retention", at_hour(1), dry_run=True)
    assert codes(young) == {WarningCode.EMPTY_WINDOW}
    archive.table.put_policy(Policy("week", "*/*", max_bytes=1))
    assert previewed(archive, "retention", at_hour(1)).messages == 120


def test_more_streams_than_a_preview_looks_at_are_counted(archive: SeveralStreams) -> None:
    for number in range(6):
        archive.add(f"s{number}", 1)
    archive.table.requests.clear()
    found = preview(archive.table, parse_spec({"kind": "scrub"}), LATER, max_streams=4)
    assert (found.matched, len(found.streams), found.is_cut) == (6, 4, True)
    assert [warning.text for warning in found.warnings] == ["6 streams match; the sums are of the first 4 by name"]
    assert archive.table.requests == {"Query": 1 + 4, "GetItem": 4}


def test_a_stream_of_a_class_whose_reads_are_charged_costs_more(archive: SeveralStreams) -> None:
    archive.add("warm", 3)
    archive.add("cold", 3, cold=(0, 1, 2))
    warm, cold = (previewed(archive, "load", streams=[name]) for name in ("warm", "cold"))
    assert warm.read_bytes == cold.read_bytes < GB
    assert cold.usd >= warm.usd


def test_a_hostile_name_is_refused_or_told_as_it_is(archive: SeveralStreams) -> None:
    with pytest.raises(InvalidInputError, match="streams"):
        previewed(archive, "scrub", streams=["x" * 255 + "ä"])
    archive.add("<script>\n", 1)
    assert previewed(archive, "scrub").streams[0].stream.name == "<script>\n"


@pytest.mark.parametrize("kind", JobKind)
def test_each_kind_is_told_as_json(archive: SeveralStreams, kind: JobKind) -> None:
    archive.add("orders", 2)
    found = previewed(archive, kind.value)
    told = json.loads(json.dumps(found.to_dict()))
    assert told["kind"] == kind.value
    assert told["matched_streams"] == len(told["streams"]) == 1
    assert told["streams"][0]["name"] == "orders"
