"""The actors of a stream's life: each does with the shipped code what one process does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from coldstream.archive.missing import record_loss
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.upload import Uploader
from coldstream.compact.options import CompactOptions
from coldstream.compact.run import Compactor
from coldstream.compact.task import write_task
from coldstream.erase.run import Eraser, unfinished_erasures
from coldstream.erase.selection import Selection
from coldstream.errors import (
    ColdstreamError,
    ConflictError,
    HeldError,
    InvalidQueryError,
    NotDeletedError,
    NotFoundError,
    ObjectNotFoundError,
    OtherClusterError,
    OtherCopiesError,
    OutcomeUnknownError,
    RemovedError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.run import GarbageCollector
from coldstream.lifecycle.deletion import delete_stream, undelete_stream
from coldstream.lifecycle.holds import put_hold, release_hold
from coldstream.lifecycle.retention import run_retention
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.tend import tend
from coldstream.lifecycle.truncation import truncate, up_to_offset
from coldstream.manifest.cluster import NO_CLUSTER, Cluster
from coldstream.manifest.entry import Encoding
from coldstream.manifest.policy import Policy
from coldstream.manifest.state import ManifestState
from coldstream.rebuild.run import Rebuilder
from coldstream.store.control import ControlObjects
from coldstream.store.memory.bucket import etag_of
from coldstream.store.memory.table import MemoryTable
from coldstream.store.object_values import SIGNATURE_MS, BucketCapabilities
from coldstream.units import Offset
from tests.explore.base import (
    DAY_MS,
    ERASED,
    FRAGMENT_BYTES,
    GRACE_MS,
    HOUR_MS,
    INCARNATION,
    KEYS,
    NOW,
    STREAM,
    Base,
    archived,
    segment,
)
from tests.explore.lookups import SOME_STARTS, known_place, look_up, offsets_of
from tests.explore.names_store import NamesState
from tests.explore.runs import Role
from tests.explore.site import Site
from tests.explore.world import Faults, World

REFUSED = (HeldError, RemovedError, NotDeletedError, OtherClusterError)
"""Answers with which an operator's command ends, or an event goes to its dead letters."""

CLUSTERS = {"north", "south"}
"""Actors that are clusters, of the same names."""

TRANSIENT = (ConflictError, OutcomeUnknownError, UnavailableError)
"""After these an event goes back to its queue, and a scheduled function runs again."""

RIVAL_REMOVED = "rival removed"
"""What is said if another history's copy came while the stream was deleted: its agent keeps its own until the purge."""

POLICY = Policy("short", "%2F/*", max_age_ms=94 * DAY_MS)
"""Lets the first fragment go, and keeps the second."""


def stores(site: Site) -> LifecycleStores:
    """Return a process's stores, as commands and functions have them."""
    return LifecycleStores(
        table=site.table,
        objects=site.objects,
        keys=KEYS,
        control=ControlObjects(site.objects, KEYS),
        bucket=BucketCapabilities(versioned=site.is_versioned, object_lock=False),
        now=site.clock,
        grace_ms=GRACE_MS,
    )


def upload(event: SegmentRolled, site: Site, *, has_rival: bool = False) -> str:
    """Archive a staged slice; return what became of it. Only a copy of another history may end in quarantine."""
    uploader = Uploader(site.table, site.objects, KEYS, FRAGMENT_BYTES, now=site.host_clock)
    try:
        result = uploader.upload(event)
    except ObjectNotFoundError as err:
        raise UnavailableError(str(err)) from err
    assert result.quarantined is None or has_rival, result.reason
    if result.quarantined is not None:
        return f"quarantined {event.first_offset} {event.next_offset}"
    return "removed" if result.removed else "stale" if result.is_stale else f"{event.first_offset} {event.next_offset}"


def stage_rival(event: SegmentRolled, site: Site) -> str:
    """Stage the second segment as another history has it, at the same key, and have it archived."""
    data = segment(event.first_offset, event.next_offset, epoch=2)
    site.objects.put(event.staged_key, data)
    rival = replace(event, etag=etag_of(data), size_bytes=len(data))
    said = upload(rival, site, has_rival=True)
    return RIVAL_REMOVED if said == "removed" else said


def upload_bad(event: SegmentRolled, site: Site) -> str:
    """Have the upload function deal with a damaged copy: it goes to quarantine, unless it was removed."""
    uploader = Uploader(site.table, site.objects, KEYS, FRAGMENT_BYTES, now=site.host_clock)
    try:
        result = uploader.upload(event)
    except ObjectNotFoundError as err:
        raise UnavailableError(str(err)) from err
    assert result.quarantined is not None or result.removed, "damaged, and archived"
    return "removed" if result.removed else f"quarantined {event.first_offset} {event.next_offset}"


def upload_of_cluster(event: SegmentRolled, site: Site, *, has_rival: bool = False) -> str:
    """Archive a slice that one of two clusters announces, each as if the stream was its own."""
    said = upload(event, site, has_rival=has_rival)
    site.tell("archived by", event.cluster)
    return said


def outrun(event: SegmentRolled, site: Site) -> str:
    """Archive the second segment, and truncate it away at once."""
    said = upload(event, site, has_rival=True)
    cut_all(site)
    return said


def delete(site: Site) -> None:
    """Delete the stream."""
    delete_stream(stores(site), INCARNATION, grace_ms=HOUR_MS, by="alice")


def compact(site: Site) -> None:
    """Merge all that there is."""
    there = stores(site)
    compactor = Compactor(
        there.table, there.objects, write=lambda task: write_task(there.objects, KEYS, task), at_once=1, now=there.now
    )
    options = CompactOptions(0, 1 << 20, Encoding.IDENTITY, 1, grace_ms=GRACE_MS)
    for report in compactor.run([STREAM], options):
        for failure in report.failures:
            # A scheduled job: it runs again. What was removed meanwhile is no failure of the archive.
            raise UnavailableError(str(failure))


def retain(site: Site) -> None:
    """Apply the policy."""
    for report in run_retention(stores(site), [STREAM], dry_run=False):
        _raise(report.error)


def cut(site: Site) -> None:
    """Truncate the stream up to the end of the first segment: all that was archived at first."""
    truncate(stores(site), INCARNATION, up_to_offset(Offset(8)), why="ticket 1", by="alice")


def cut_all(site: Site) -> None:
    """Truncate the stream up to the end of the second segment, archived or not."""
    truncate(stores(site), INCARNATION, up_to_offset(Offset(16)), why="ticket 3", by="alice")


def undelete(site: Site) -> None:
    """Undo the deletion of another."""
    undelete_stream(stores(site), INCARNATION, by="bob")


def regret(site: Site) -> None:
    """Delete the stream, and undo it."""
    delete(site)
    undelete_stream(stores(site), INCARNATION, by="alice")


def purge(site: Site) -> None:
    """Delete the stream, and let its purge come."""
    delete(site)
    site.wait(2 * DAY_MS)
    tend_now(site)


def hold(site: Site) -> None:
    """Put a hold on the second fragment. From its answer on, nothing of that goes, whoever had begun before."""
    one = put_hold(
        stores(site),
        INCARNATION,
        first_offset=Offset(4),
        next_offset=Offset(8),
        reason="a lawsuit",
        by="legal",
        wait=lambda _: site.wait(SIGNATURE_MS // 2),
    )
    site.tell("held", one.id)


def release(site: Site) -> None:
    """Put a hold, and release all."""
    hold(site)
    for one in site.table.holds(INCARNATION):
        with suppress(NotFoundError):  # released by another
            release_hold(stores(site), INCARNATION, one.id, by="legal")


def erase(site: Site) -> None:
    """Erase what lies around the border of the first two fragments."""
    there = stores(site)
    eraser = Eraser(there)
    selection = Selection(Offset(min(ERASED)), Offset(max(ERASED) + 1))
    running = unfinished_erasures(there, INCARNATION)
    if running:
        erasure = running[0]
    elif there.table.erasures(INCARNATION):
        return
    else:
        try:
            erasure, _, _ = eraser.begin(STREAM, selection, reason="ticket 2", by="alice", with_copies=True)
        except (InvalidQueryError, OtherCopiesError):
            return  # removed by now; or copies that may be the only ones
        site.tell("erasing", erasure.id)
    try:
        eraser.run(STREAM, erasure, selection)
    except ObjectNotFoundError as err:
        raise UnavailableError("it slept until garbage took its object; it is run again") from err


def tend_now(site: Site) -> None:
    """Do what the sweep function does."""
    for report in tend(stores(site), [STREAM]):
        _raise(report.error)


def sweep(site: Site) -> None:
    """Wait for what was removed to be due, and do what the sweep function does."""
    site.wait(GRACE_MS + 1)
    tend_now(site)


def garbage(site: Site) -> None:
    """Wait until what is in the bucket is no longer young, and collect."""
    site.wait(DAY_MS + HOUR_MS)
    GarbageCollector(site.table, site.objects, KEYS, site.clock).run(GarbageOptions(delete=True))


def lose(site: Site) -> str:
    """Announce that the second segment's second half is lost."""
    event = SegmentLost(STREAM, Offset(12), Offset(16), "the disk was full")
    is_new = record_loss(site.table, ControlObjects(site.objects, KEYS), event, site.host_clock)
    return "lost 12 16" if is_new else "removed"


def read(site: Site) -> None:
    """Look up every kind of start: each answer has to be that of some moment of its request."""
    for start in SOME_STARTS:
        site.begin("look up")
        site.end("look up", (start, look_up(site.table, start, known_place)))


def rebuild(site: Site) -> None:
    """Rebuild into a second table: it has to have all that was archived all the while, and nothing else."""
    site.begin("rebuild")
    table = MemoryTable()
    report = Rebuilder(table, site.objects, KEYS, site.clock, GRACE_MS, reads_at_once=1).stream(INCARNATION)
    there = table._partitions.get(INCARNATION, ManifestState())
    doubtful = frozenset(doubt.key for doubt in report.doubtful)
    site.end("rebuild", (frozenset(offsets_of(there)), doubtful, bool(report.unreadable)))


def _raise(error: ColdstreamError | None) -> None:
    if error is not None:
        raise error


def then(*works: Callable[[Site], None]) -> Callable[[Site], None]:
    """Do one thing after the other."""

    def work(site: Site) -> None:
        for one in works:
            one(site)

    return work


PLAIN: dict[str, Callable[[Site], object]] = {
    "compact": compact,
    "retain": retain,
    "cut": cut,
    "delete": delete,
    "undelete": undelete,
    "regret": regret,
    "purge": purge,
    "hold": hold,
    "release": release,
    "erase": erase,
    "tend": tend_now,
    "sweep": sweep,
    "garbage": garbage,
    "lose": lose,
    "read": read,
    "rebuild": rebuild,
    "fold": then(compact, sweep),
    "expire": then(retain, sweep),
}
STAGED: dict[str, tuple[Callable[[SegmentRolled, Site], object], tuple[int, int]]] = {
    "upload": (upload, (8, 16)),
    "twice": (upload, (8, 16)),
    "slice": (upload, (8, 12)),
    "other": (upload, (10, 16)),
    "late": (upload, (0, 8)),
    "outrun": (outrun, (8, 16)),
    "bad": (upload_bad, (8, 14)),
    "north": (upload_of_cluster, (8, 12)),
    "south": (upload_of_cluster, (10, 16)),
}
"""The actors that have a slice staged at first, and what they do with its event; `twice` gets the event of `upload`."""

BASES: dict[str, Callable[[], Base]] = {}
"""Other archives to begin with, by the name that stands before the actors: `held+cut`. Files of guards add theirs."""


@dataclass(frozen=True, slots=True)
class Further:
    """An actor that only the worlds of some guards have: what it does, and the offsets that it announces."""

    work: Callable[[Site], object]
    announced: Collection[int] = ()


MORE: dict[str, Callable[[Base], Further]] = {}
"""Further actors, by name, each as it is in a base: it may stage something there. Files of guards add theirs."""


def world(names: Sequence[str], *, faults: str | Faults = "0c0l0r", base: Base | None = None) -> World:
    """Return a world with these actors, on one of BASES if its name is the first; `name.2` is a second one of a kind.

    Raises KeyError.
    """
    faults = Faults.parse(faults) if isinstance(faults, str) else faults
    if names[0] in BASES:
        base, names = BASES[names[0]](), names[1:]
    if base is None:
        base = archived((), orphan=False) if faults.is_new else archived()
    # Of a stream of which nothing is archived yet nobody knows.
    refusals = (*REFUSED, StreamNotFoundError) if faults.is_new else REFUSED
    roles = []
    there = base.table._partitions.get(INCARNATION, ManifestState())
    announced = {at for one in there.entries.values() for at in range(one.first_offset, one.next_offset)}
    for name in names:
        kind = name.partition(".")[0]
        if kind == "rival":
            event = base.stage(8, 16)
            announced |= set(range(8, 16))
            roles.append(Role(name, partial(stage_rival, event), refusals, TRANSIENT))
        elif kind in STAGED:
            work, span = STAGED[kind]
            data = segment(*span)[:-1] + b"?" if kind == "bad" else None
            event = base.stage(*span, data=data, cluster=Cluster(kind) if kind in CLUSTERS else NO_CLUSTER)
            announced |= set(range(*span))
            options = {"has_rival": True} if work in {upload, upload_of_cluster} and "rival" in names else {}
            roles.append(Role(name, partial(work, event, **options), refusals, TRANSIENT))
        elif kind in MORE:
            further = MORE[kind](base)
            announced |= set(further.announced)
            roles.append(Role(name, further.work, refusals, TRANSIENT))
        else:
            roles.append(Role(name, PLAIN[kind], refusals, TRANSIENT))
    base.table._policies[POLICY.name] = POLICY
    return World(
        stream=STREAM,
        log=there,
        recorded=base.table._recorded.get(INCARNATION, {}),
        names=NamesState.of(base.table),
        bucket=base.bucket,
        now=NOW,
        roles=roles,
        announced=frozenset(announced),
        rival=segment(8, 16, epoch=2) if "rival" in names else None,
        faults=faults,
    )
