"""What has to be at the end, when everybody is done: all graces pass, all is swept and collected, and this is left."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from coldstream.erase.resume import resume_erasures
from coldstream.erase.run import Eraser
from coldstream.errors import CorruptionError, LostRaceError, OtherClusterError
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.run import GarbageCollector
from coldstream.lifecycle.holds import release_hold
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.tend import tend
from coldstream.manifest.cluster import NO_CLUSTER, Cluster
from coldstream.manifest.entry import Head, Hold, Loss, Quarantine
from coldstream.manifest.repair import DAMAGED
from coldstream.manifest.state import ManifestState, replay
from coldstream.rebuild.compare import differences
from coldstream.rebuild.run import Rebuilder
from coldstream.store.control import ControlObjects
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.object_values import BucketCapabilities
from coldstream.store.parsed_keys import KeyKind
from coldstream.store.sortkeys import names_key, registry_key
from coldstream.units import TimestampMs
from tests.explore.actors import CLUSTERS, RIVAL_REMOVED
from tests.explore.base import DAY_MS, ERASED, GRACE_MS, INCARNATION, KEYS, SECOND, STREAM, secret
from tests.explore.bucket_store import BucketState
from tests.explore.invariants import has_message, order_makes_no_difference
from tests.explore.machine import Told, Violation
from tests.explore.names_store import NamesState
from tests.explore.world import World
from tests.support.compaction import identity_of


def is_known_end(
    state: ManifestState, bucket: BucketState, names: NamesState, said: Sequence[str], told: Told
) -> Hashable:
    """Return what the checks of an end depend on: the table without its journal, and the bucket."""
    entries = tuple(
        sorted((one.key, one.crc32, one.prior_offset, one.prior_timestamp) for one in state.entries.values())
    )
    items = tuple(sorted((one.key, one.all_versions) for one in state.tombstones.values()))
    records = tuple(repr(one) for one in (*state.holds.values(), *state.erasures.values(), *state.missing.values()))
    head = state.head and replace(state.head, revision=0, claims=())
    objects = frozenset((key, version.data) for key, version in bucket.objects.items())
    objects |= frozenset((key, *(one.data for one in versions)) for key, versions in bucket.earlier.items())
    bound = tuple(tuple(sorted(some.items())) for some in names.items)
    return entries, items, records, head, objects, bucket.gone, bound, told.erased, tuple(said)


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """The bytes of a version, and its key."""

    key: str
    data: bytes


class End:
    """The stores at an end, and how they go on without anybody."""

    def __init__(
        self,
        world: World,
        state: ManifestState,
        objects: MemoryObjects,
        now: TimestampMs,
        *,
        recorded: Mapping[int, bytes],
        names: NamesState,
    ) -> None:
        self.now = now
        self.objects = objects
        objects.clock = self.clock
        self.table = MemoryTable()
        names.copy_into(self.table)
        self.table._partitions = {INCARNATION: state}
        self.table._recorded = {INCARNATION: dict(recorded)}
        key = registry_key(STREAM.vhost, STREAM.name, INCARNATION)
        self.table._registry = {key: STREAM}
        self.table._newest = {names_key(STREAM.vhost, STREAM.name): key}
        self.stores = LifecycleStores(
            table=self.table,
            objects=objects,
            keys=KEYS,
            control=ControlObjects(objects, KEYS),
            bucket=BucketCapabilities(versioned=world.faults.is_versioned, object_lock=False),
            now=self.clock,
            grace_ms=GRACE_MS,
        )

    def clock(self) -> TimestampMs:
        return self.now

    @property
    def state(self) -> ManifestState:
        return self.table._partitions[INCARNATION]

    def pass_graces(self) -> None:
        """Release all holds; sweep, collect and resume until nothing is due any more."""
        for one in list(self.state.holds):
            release_hold(self.stores, INCARNATION, one, by="legal")
        for _ in range(3):
            self.now = TimestampMs(self.now + 20 * DAY_MS)
            for report in tend(self.stores, [STREAM]):
                assert report.error is None, report.error
                assert not report.failures, report.failures
            GarbageCollector(self.table, self.objects, KEYS, self.clock).run(GarbageOptions(delete=True))
            for resumed in resume_erasures(Eraser(self.stores), [STREAM]):
                assert resumed.error is None, resumed.error

    def rebuilt(self) -> MemoryTable:
        table = MemoryTable()
        report = Rebuilder(table, self.objects, KEYS, self.clock, GRACE_MS, reads_at_once=1).stream(INCARNATION)
        assert report.is_done
        return table


def check_end(end: End, world: World, said: Sequence[str]) -> None:
    """Hold an end against 3, 7 and 11. Raises Violation."""
    if end.state.head is None:
        return
    try:
        rebuild_takes_nothing_away(end)
        no_copy_is_lost(world, end, said)
        end.pass_graces()
        order_makes_no_difference(end.state, world.announced, *_said(world, said))
        bucket_has_just_that(end, said)
        erased_is_gone(end)
        bucket_is_enough(end, said)
        replayed = replay(end.table.recorded_changes(INCARNATION))
        assert replayed == end.state, "the journal gives another table"
    except Violation:
        raise
    except (AssertionError, CorruptionError, LostRaceError) as err:
        raise Violation(f"at the end: {str(err).splitlines()[0]}") from err


def _said(world: World, said: Sequence[str]) -> tuple[set[int], set[int]]:
    """Return the offsets that were archived at first or that uploads say to be, and those said to be missing."""
    done = {at for one in world.log.entries.values() for at in range(one.first_offset, one.next_offset)}
    missing: set[int] = set()
    for one in said:
        words = one.split()
        if words[0] in {"lost", "quarantined"}:
            missing |= set(range(int(words[1]), int(words[2])))
        elif words[0].isdigit():
            done |= set(range(int(words[0]), int(words[1])))
        elif words[:2] == ["given", "up"]:
            done -= set(range(int(words[2]), int(words[3])))
    return done, missing


def no_copy_is_lost(world: World, end: End, said: Sequence[str]) -> None:
    """Hold 3: a copy of another history is archived, or in quarantine, whole, unless it came to a deleted stream."""
    head = end.state.head
    if world.rival is None or head is None or head.is_deleted or head.floor or RIVAL_REMOVED in said:
        return
    if is_somebody_refused(said) and world.rival in end.objects.objects.values():
        return
    kept = [KEYS.parse(key) for key, data in end.objects.objects.items() if data == world.rival]
    archived = any(secret(offset, 2) in identity_of(end.objects, one)
                   for one in end.state.entries.values() for offset in (SECOND,))  # fmt: skip
    is_kept = any(one is not None and one.kind is KeyKind.QUARANTINED for one in kept)
    assert archived or is_kept, "a copy of another history is neither archived nor in quarantine"


def is_somebody_refused(said: Sequence[str]) -> bool:
    """Tell whether an announcement ended in the dead letters, as the stream is another cluster's."""
    return any(one.startswith(OtherClusterError.__name__) for one in said)


def rebuild_takes_nothing_away(end: End) -> None:
    """Hold 7: as soon as everybody has done what they were asked, the bucket removes nothing that the table has."""
    head = end.state.head
    if head is None or head.is_deleted:
        return
    rebuilt = end.rebuilt().head(INCARNATION)
    assert rebuilt is not None, "the bucket does not know the stream"
    assert not rebuilt.is_deleted, "the bucket says that the stream is deleted"
    assert rebuilt.floor <= head.floor, "the bucket has a higher floor"


def bucket_has_just_that(end: End, said: Sequence[str]) -> None:
    """The bucket holds the live objects, the notes, and what is in quarantine; nothing else."""
    named = {one.key for one in end.state.entries.values()}
    kinds = {key: KEYS.parse(key) for key in end.objects.objects}
    kept = {KeyKind.CONTROL, KeyKind.QUARANTINED, KeyKind.QUARANTINE_NOTE}
    bound = end.table.bound_cluster(STREAM.vhost, STREAM.name)
    # What was refused is kept, for whoever looks at its dead letter.
    others = {NO_CLUSTER, *map(Cluster, CLUSTERS)} - {bound} if is_somebody_refused(said) else ()
    refused = tuple(replace(KEYS, cluster=one).staging(INCARNATION) for one in others)
    left = {
        key
        for key, parsed in kinds.items()
        if (parsed is None or parsed.kind not in kept) and not key.startswith(refused)
    }
    assert left == named, f"left behind: {left - named}; missing: {named - left}"
    assert not end.state.tombstones, "tombstones are left"
    assert not end.objects.uploads_under(""), "an upload is left unfinished"


def erased_is_gone(end: End) -> None:
    """Messages of an erasure that is done are nowhere in the bucket."""
    done = {one.reached for one in end.state.erasures.values()}
    for offset in ERASED if done else ():
        there = has_message(offset, end.state, end.objects)
        assert not there or offset >= max(done), f"{offset} was to be erased"
        if not there:
            holders = {one.key for one in every_version(end.objects) if secret(offset) in one.data}
            assert not holders, f"the message at {offset} is still in the bucket: {holders}"


def every_version(objects: MemoryObjects) -> list[StoredVersion]:
    """Return all that has bytes: the objects, and the versions before them."""
    found = [StoredVersion(key, data) for key, data in objects.objects.items()]
    for key, versions in objects._earlier.items():
        found += [StoredVersion(key, one.data) for one in versions if one.data is not None]
    return found


def bucket_is_enough(end: End, said: Sequence[str]) -> None:
    """Hold 7: a rebuild from the bucket alone gives the table.

    What protects is written to the bucket first, and taken away last: who dies between leaves a hold; and the note of a
    loss stays that came too late, below the floor by then, or whose agent died, and is refused by now as the stream is
    a cluster's; and that of a range that was not given up in the end, as it is held by now, or known to be lost. The
    note of a quarantine stays, with its copy, if who wrote it died or gave up before the record, and is refused by now,
    too. And a fence whose maker died before its note is low in the bucket: nothing goes by it, as each deletion shows.
    Of two who end a purge at once, either may leave its note.
    """
    floor = end.state.head.floor if end.state.head else 0
    found = list(differences(end.table, end.rebuilt(), INCARNATION))
    unrecorded = [one for one in found if isinstance(one.other, Loss) and one.one is None]
    late = [
        one
        for one in unrecorded
        if is_somebody_refused(said) or one.other.next_offset <= floor or one.other.reason == DAMAGED
    ]
    holds = [one for one in found if isinstance(one.other, Hold) and one.one is None]
    copies = end.objects.objects if is_somebody_refused(said) else ()
    aside = [one for one in found if isinstance(one.other, Quarantine) and one.one is None and one.other.key in copies]
    allowed = {"generation"} | {
        field for field, some in (("losses", late), ("holds", holds), ("quarantined", aside)) if some
    }
    heads = [one for one in found if isinstance(one.one, Head) and isinstance(one.other, Head)]
    if all(one.one.purged_at and one.other.purged_at for one in heads):
        allowed.add("purged_at")
    left = [
        (one.item, one.fields)
        for one in found
        if one not in (*late, *holds, *aside) and (not one.fields or {*one.fields} - allowed)
    ]
    assert not left, f"the bucket gives another table: {left}"
