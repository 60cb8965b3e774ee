"""Clusters that share an archive: none can write to a stream that another announced first."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest

from coldstream.archive.cluster_binding import claim
from coldstream.archive.missing import record_loss
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.errors import InvalidEventError, OtherClusterError
from coldstream.ingest.stage import find_rolled, stage
from coldstream.manifest.cluster import NO_CLUSTER, Cluster
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.units import Offset
from tests.support.segments import START, STREAM, MemoryArchive

CONTROL = ControlObjects(MemoryObjects(), Keys())
EU, US = Cluster("eu"), Cluster("us")
LATER = Incarnation("__orders_1763700000000000009")
OF_US = StreamId("/", "payments", Incarnation("__payments_1763700000000000001"))


@pytest.fixture
def archive() -> MemoryArchive:
    return MemoryArchive()


def staged_by(
    archive: MemoryArchive, directory: Path, cluster: Cluster, stream: StreamId = STREAM, number: int = 0
) -> SegmentRolled:
    keys = replace(archive.keys, cluster=cluster)
    return stage(find_rolled(directory)[number], stream, archive.objects, keys)


def test_a_cluster_stages_and_announces_for_itself(archive: MemoryArchive, directory: Path) -> None:
    event = staged_by(archive, directory, EU)
    assert event.staged_key.startswith(f"archive/staging/eu/{STREAM.incarnation}/")
    assert archive.uploader.upload(event).fragments_committed > 0
    assert archive.objects.info(event.staged_key) is None
    assert archive.table.bound_cluster("/", "orders") == EU


def test_an_agent_of_a_cluster_archives_what_an_agent_without_one_does(
    archive: MemoryArchive, directory: Path, expected: tuple[object, ...]
) -> None:
    for number in range(len(find_rolled(directory))):
        archive.uploader.upload(staged_by(archive, directory, EU, number=number))
    assert archive.state() == expected


@pytest.mark.parametrize("other", [US, NO_CLUSTER])
@pytest.mark.parametrize(
    "stream",
    [
        STREAM,
        replace(STREAM, incarnation=LATER),
        StreamId("/", "payments", STREAM.incarnation),
    ],
    ids=["the same incarnation", "a newer one of the same names", "the same one by other names"],
)
def test_another_cluster_adds_nothing_to_a_stream_that_is_bound(
    archive: MemoryArchive, directory: Path, other: Cluster, stream: StreamId
) -> None:
    archive.uploader.upload(staged_by(archive, directory, EU))
    before = archive.state(), archive.table.head(STREAM.incarnation)
    event = staged_by(archive, directory, other, stream, number=1)
    with pytest.raises(OtherClusterError, match="bound to cluster 'eu'"):
        archive.uploader.upload(event)
    lost = SegmentLost(stream, event.first_offset, event.next_offset, "says who?", other)
    with pytest.raises(OtherClusterError):
        record_loss(archive.table, CONTROL, lost, lambda: START)
    assert (archive.state(), archive.table.head(STREAM.incarnation)) == before
    assert archive.table.incarnation_of("/", "orders") == STREAM.incarnation
    assert archive.table.head(LATER) is None
    assert archive.objects.info(event.staged_key) is not None  # kept, for whoever looks at the dead letter


def test_an_event_takes_no_copy_that_another_cluster_staged(archive: MemoryArchive, directory: Path) -> None:
    ours = staged_by(archive, directory, EU)
    for announcing in (US, NO_CLUSTER):
        with pytest.raises(InvalidEventError, match=r"staged\.key"):
            archive.uploader.upload(replace(ours, cluster=announcing))
    assert archive.table.bound_cluster("/", "orders") == NO_CLUSTER
    assert archive.objects.info(ours.staged_key) is not None


def test_streams_of_an_agent_without_a_cluster_are_taken_over_by_the_first_cluster_that_announces_them(
    archive: MemoryArchive, directory: Path
) -> None:
    archive.uploader.upload(staged_by(archive, directory, NO_CLUSTER))
    assert archive.table.bound_cluster("/", "orders") == NO_CLUSTER
    archive.uploader.upload(staged_by(archive, directory, EU, number=1))
    assert archive.table.bound_cluster("/", "orders") == EU
    with pytest.raises(OtherClusterError, match="without COLDSTREAM_CLUSTER"):
        archive.uploader.upload(staged_by(archive, directory, NO_CLUSTER, number=2))
    assert archive.uploader.upload(staged_by(archive, directory, EU, number=2)).fragments_committed > 0


def test_a_loss_alone_binds_a_stream_too(archive: MemoryArchive) -> None:
    record_loss(
        archive.table, CONTROL, SegmentLost(STREAM, Offset(0), Offset(9), "the disk was full", EU), lambda: START
    )
    with pytest.raises(OtherClusterError):
        claim(archive.table, CONTROL, STREAM, US)


def test_if_two_clusters_announce_at_once_exactly_one_is_refused(archive: MemoryArchive) -> None:
    for seed in range(20):
        rng = random.Random(seed)
        stream = replace(STREAM, name=f"orders {seed}")
        claims = [(cluster, rng.random()) for cluster in (EU, US)] * 2
        refused = set()
        for cluster, _ in sorted(claims, key=lambda each: each[1]):
            try:
                claim(archive.table, CONTROL, stream, cluster)
            except OtherClusterError:
                refused.add(cluster)
        assert len(refused) == 1
        assert archive.table.bound_cluster("/", stream.name) not in refused


def test_a_claim_that_finds_no_binding_but_loses_the_race_is_refused(archive: MemoryArchive) -> None:
    class Overtaken(type(archive.table)):  # type: ignore[misc]  # a class of the fixture's
        def bound_cluster(self, vhost: str, name: str) -> Cluster:
            found: Cluster = super().bound_cluster(vhost, name)
            super().bind_cluster(vhost, name, US)
            return found

    with pytest.raises(OtherClusterError, match="bound to cluster 'us'"):
        claim(Overtaken(), CONTROL, STREAM, EU)


def test_the_bucket_knows_of_a_binding_whoever_dies_after_it(archive: MemoryArchive) -> None:
    """Two clusters claim at once. Each dies after any of its writes, and tries again, at the end for good."""

    class DiedError(Exception):
        pass

    class Dying:
        """Lets so many writes through, and runs another between the read and the first of them."""

        def __init__(self, writes: int, between: Callable[[], None]) -> None:
            self.left, self.between = writes, between

        def spend(self) -> None:
            self.between()
            self.between = lambda: None
            if self.left == 0:
                raise DiedError
            self.left -= 1

    def attempt(cluster: Cluster, writes: int, between: Callable[[], None] = lambda: None) -> None:
        dying = Dying(writes, between)
        objects, table = archive.objects, archive.table
        control = SimpleNamespace(write_cluster=lambda *note: (dying.spend(), real.write_cluster(*note)))
        real = ControlObjects(objects, archive.keys)
        seen = SimpleNamespace(
            head=table.head,
            bound_cluster=table.bound_cluster,
            bind_cluster=lambda *binding: (dying.spend(), table.bind_cluster(*binding))[1],
        )
        with suppress(DiedError, OtherClusterError):
            claim(seen, control, stream, cluster)  # type: ignore[arg-type]

    for number, (of_eu, of_us) in enumerate(product(range(4), repeat=2)):
        stream = replace(STREAM, name=f"orders {number}")
        attempt(EU, of_eu, lambda of_us=of_us: attempt(US, of_us))  # type: ignore[misc]
        for cluster in (EU, US):
            attempt(cluster, 4)
        noted = {one.name: one.cluster for one in ControlObjects(archive.objects, archive.keys).clusters()}
        assert noted[stream.name] == archive.table.bound_cluster("/", stream.name)


def test_a_claim_costs_two_reads(archive: MemoryArchive) -> None:
    claim(archive.table, CONTROL, STREAM, EU)
    archive.table.requests.clear()
    claim(archive.table, CONTROL, STREAM, EU)
    assert archive.table.requests == {"GetItem": 2}
    archive.table.requests.clear()
    claim(archive.table, CONTROL, OF_US, NO_CLUSTER)
    assert archive.table.requests == {"GetItem": 2}
