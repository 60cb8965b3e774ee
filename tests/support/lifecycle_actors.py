"""The actors of a stream's life: each a function that does in a world what one process does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from coldstream.compact.options import CompactOptions
from coldstream.compact.run import Compactor
from coldstream.compact.task import write_task
from coldstream.erase.run import Eraser, unfinished_erasures
from coldstream.erase.selection import Selection
from coldstream.errors import (
    ColdstreamError,
    HeldError,
    InvalidQueryError,
    NotDeletedError,
    NotFoundError,
    ObjectNotFoundError,
    OtherCopiesError,
    RemovedError,
    UnavailableError,
)
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.run import GarbageCollector
from coldstream.lifecycle.deletion import delete_stream, undelete_stream
from coldstream.lifecycle.holds import put_hold, release_hold
from coldstream.lifecycle.retention import run_retention
from coldstream.lifecycle.tend import tend
from coldstream.lifecycle.truncation import truncate, up_to_offset
from coldstream.manifest.entry import Encoding
from coldstream.manifest.policy import Policy
from coldstream.rebuild.run import Rebuilder
from coldstream.store.memory.table import MemoryTable
from coldstream.store.object_values import SIGNATURE_MS
from coldstream.units import Offset, TimestampMs
from tests.support.lifecycle_model import ERASED, Model
from tests.support.lifecycle_world import (
    DAY_MS,
    GRACE_MS,
    HOUR_MS,
    INCARNATION,
    KEYS,
    STREAM,
    LifecycleWorld,
)

REFUSED = (HeldError, RemovedError, NotDeletedError)
"""Answers with which an operator's command ends."""

POLICY = Policy("short", "%2F/*", max_age_ms=94 * DAY_MS)
"""Lets the first fragment go, and keeps the second."""


def upload(world: LifecycleWorld, model: Model, first: int, following: int) -> Callable[[], None]:
    """Stage a slice now; the actor is the upload function, which gets its event until it has dealt with it."""
    event = world.stage_segment(first, following)

    def work() -> None:
        try:
            result = world.uploader.upload(event)
        except ObjectNotFoundError as err:
            # The event came twice, and for the first the stream was deleted: the agent announces another copy.
            if err.key == event.staged_key and any(one.head and one.head.is_deleted for one in model.states):
                return
            # It slept until a sweep took what it compares with, or what is archived shows by half: it comes again.
            raise UnavailableError(str(err)) from err
        assert result.quarantined is None, result.reason
        if not result.removed:
            model.expect(first, following)

    return work


def compact(world: LifecycleWorld) -> None:
    """Merge all that there is."""
    stores = world.stores
    compactor = Compactor(
        stores.table,
        stores.objects,
        write=lambda task: write_task(stores.objects, KEYS, task),
        at_once=1,
        now=stores.now,
    )
    options = CompactOptions(0, 1 << 20, Encoding.IDENTITY, 1, grace_ms=GRACE_MS)
    for report in compactor.run([STREAM], options):
        for failure in report.failures:
            # A scheduled job: it runs again. What was removed meanwhile is no failure of the archive.
            raise UnavailableError(str(failure))


def retain(world: LifecycleWorld) -> None:
    """Apply the policy."""
    world.table._policies[POLICY.name] = POLICY
    for report in run_retention(world.stores, [STREAM], dry_run=False):
        _raise(report.error)


def cut(world: LifecycleWorld) -> None:
    """Truncate the stream up to the end of the first segment: all that was archived at first."""
    truncate(world.stores, INCARNATION, up_to_offset(Offset(8)), why="ticket 1", by="alice")


def outrun(world: LifecycleWorld, model: Model) -> Callable[[], None]:
    """Archive the second segment from another event of the same copy, and truncate it away at once."""
    archive = upload(world, model, 8, 16)

    def work() -> None:
        archive()
        truncate(world.stores, INCARNATION, up_to_offset(Offset(16)), why="ticket 3", by="alice")

    return work


def delete(world: LifecycleWorld) -> None:
    delete_stream(world.stores, INCARNATION, grace_ms=HOUR_MS, by="alice")


def regret(world: LifecycleWorld) -> None:
    """Delete the stream, and undo it."""
    delete(world)
    undelete_stream(world.stores, INCARNATION, by="alice")


def undelete(world: LifecycleWorld) -> None:
    """Undo the deletion of another."""
    undelete_stream(world.stores, INCARNATION, by="bob")


def drop(world: LifecycleWorld) -> None:
    """Delete the stream, and let its purge come."""
    delete(world)
    sweep(world)
    world.wait(2 * DAY_MS)
    sweep(world)


def hold(world: LifecycleWorld) -> None:
    """Put a hold on the second fragment. From its answer on, nothing of that goes, whoever had begun before."""
    one = put_hold(
        world.stores,
        INCARNATION,
        first_offset=Offset(4),
        next_offset=Offset(8),
        reason="a lawsuit",
        by="legal",
        wait=lambda _: world.wait(SIGNATURE_MS // 2),
    )
    world.answered_holds.add(one.id)


def hold_and_release(world: LifecycleWorld) -> None:
    hold(world)
    for one in world.table.holds(INCARNATION):
        with suppress(NotFoundError):  # released by another
            release_hold(world.stores, INCARNATION, one.id, by="legal")


def erase(world: LifecycleWorld) -> None:
    """Erase what lies around the border of the first two fragments."""
    eraser = Eraser(world.stores)
    selection = Selection(Offset(min(ERASED)), Offset(max(ERASED) + 1))
    running = unfinished_erasures(world.stores, INCARNATION)
    if running:
        erasure = running[0]
    elif world.table.erasures(INCARNATION):
        return
    else:
        try:
            erasure, _, _ = eraser.begin(STREAM, selection, reason="ticket 2", by="alice", with_copies=True)
        except (InvalidQueryError, OtherCopiesError):
            return  # removed by now; or copies that may be the only ones
        world.begun_erasures.add(erasure.id)
    try:
        eraser.run(STREAM, erasure, selection)
    except ObjectNotFoundError as err:
        raise UnavailableError("it slept until garbage took its object; it is run again") from err


def sweep(world: LifecycleWorld) -> None:
    """Wait for what was removed to be due, and do what the sweep function does."""
    world.wait(GRACE_MS + 1)
    for report in tend(world.stores, [STREAM]):
        _raise(report.error)


def garbage(world: LifecycleWorld) -> None:
    """Wait until what is in the bucket is no longer young, and collect."""
    world.wait(DAY_MS + HOUR_MS)
    GarbageCollector(world.table, world.objects, KEYS, world.lifecycle_clock).run(GarbageOptions(delete=True))


def then(*works: Callable[[LifecycleWorld], None]) -> Callable[[LifecycleWorld], None]:
    """Do one thing after the other."""

    def work(world: LifecycleWorld) -> None:
        for one in works:
            one(world)

    return work


def rebuild(world: LifecycleWorld, model: Model) -> None:
    """Rebuild into a second table, and hold that against all that was archived all the while."""
    begun, gone = len(model.states) - 1, set(model.gone)
    table = MemoryTable()
    report = Rebuilder(table, world.objects, KEYS, lambda: TimestampMs(world.now), GRACE_MS, reads_at_once=1).stream(
        INCARNATION
    )
    # What a sweep deletes between the listing and the reading is in neither.
    if model.gone == gone and not report.unreadable:
        model.check_rebuilt(table, model.states[begun:], {doubt.key for doubt in report.doubtful})


def read(world: LifecycleWorld, model: Model) -> None:
    """Look up every kind of start, each answer held against all moments of its request."""
    model.look_up_through(world.table)


def _raise(error: ColdstreamError | None) -> None:
    if error is not None:
        raise error


PLAIN: dict[str, Callable[[LifecycleWorld], None]] = {
    "compact": compact,
    "retain": retain,
    "cut": cut,
    "delete": delete,
    "regret": regret,
    "drop": drop,
    "hold": hold,
    "release": hold_and_release,
    "erase": erase,
    "sweep": sweep,
    "garbage": garbage,
    "fold": then(compact, sweep),
    "expire": then(retain, sweep),
}
UPLOADS = {"upload": (8, 16), "slice": (8, 12), "other": (10, 16), "late": (0, 8)}
BESIDE: dict[str, Callable[[LifecycleWorld], None]] = {"undelete": undelete}
"""Actors that make sense beside a certain other one, and not among those that are drawn."""

WATCHING: dict[str, Callable[[LifecycleWorld, Model], None]] = {"read": read, "rebuild": rebuild}


def put_on_stage(world: LifecycleWorld, model: Model, names: Sequence[str]) -> None:
    """Put actors of these names on the stage; `name.2` is a second one of a kind."""
    for name in names:
        kind = name.partition(".")[0]
        if kind in UPLOADS:
            work = upload(world, model, *UPLOADS[kind])
        elif kind == "outrun":
            work = _until_refused(outrun(world, model))
        elif kind in WATCHING:
            work = partial(WATCHING[kind], world, model)
        else:
            work = _until_refused(partial({**PLAIN, **BESIDE}[kind], world))
        world.add(name, work)


def _until_refused(work: Callable[[], None]) -> Callable[[], None]:
    def attempt() -> None:
        try:
            work()
        except REFUSED:
            return

    return attempt
