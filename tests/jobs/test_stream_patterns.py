"""Which archived streams the names and patterns of a job mean."""

from __future__ import annotations

import pytest

from coldstream.jobs.stream_patterns import match_streams
from coldstream.lifecycle.deletion import delete_stream
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.store.keys import Keys
from tests.support.previewing import SeveralStreams


@pytest.fixture
def archive() -> SeveralStreams:
    return SeveralStreams()


def test_streams_come_by_name_and_only_those_of_the_vhost(archive: SeveralStreams) -> None:
    for name in ("orders-b", "orders-a", "bills"):
        archive.add(name, 1)
    archive.add("orders-c", 1, vhost="other")
    found = match_streams(archive.table, "/", ["orders-*"])
    assert [stream.name for stream in found.streams] == ["orders-a", "orders-b"]
    assert found.unmatched == ()


def test_no_pattern_means_all(archive: SeveralStreams) -> None:
    archive.add("b", 1)
    archive.add("a", 1)
    assert [stream.name for stream in match_streams(archive.table, "/", []).streams] == ["a", "b"]


def test_a_name_costs_no_look_through_the_registry(archive: SeveralStreams) -> None:
    for number in range(3):
        archive.add(f"orders{number or ''}", 1)
    archive.table.requests.clear()
    assert len(match_streams(archive.table, "/", ["orders", "nothing"]).streams) == 1
    assert archive.table.requests["Query"] == 2


def test_what_matches_nothing_is_told(archive: SeveralStreams) -> None:
    archive.add("orders", 1)
    assert match_streams(archive.table, "/", ["orders", "bills", "b*"]).unmatched == ("bills", "b*")


def test_a_name_means_its_newest_incarnation_that_is_not_deleted(archive: SeveralStreams) -> None:
    older, newer = archive.add("orders", 1), archive.add("orders", 1)
    assert match_streams(archive.table, "/", ["o*"]).streams == (newer,)
    stores = LifecycleStores.open(archive.table, archive.objects, Keys(), grace_ms=0)
    delete_stream(stores, newer.incarnation, by="ann", grace_ms=86_400_000)
    assert match_streams(archive.table, "/", ["o*"]).streams == (older,)
    assert match_streams(archive.table, "/", ["orders"]).streams == (older,)


def test_a_large_registry_is_looked_through_up_to_a_bound(archive: SeveralStreams) -> None:
    for number in range(5):
        archive.add(f"s{number}", 1)
    found = match_streams(archive.table, "/", ["*"], max_read=3)
    assert found.is_cut
    assert len(found.streams) == 3
    assert not match_streams(archive.table, "/", ["*"], max_read=5).is_cut
