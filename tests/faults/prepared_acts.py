"""What comes before, without faults, so that there is something to do."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest

from coldstream.archive.events import event_of
from coldstream.archive.segment_rolled import SegmentRolled
from coldstream.archive.upload import Uploader
from coldstream.ingest.bus import EventBridgeBus
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.stage import find_rolled, stage
from coldstream.jobs.store import JobStore
from coldstream.store.span_object import LoggedRun, span_object
from coldstream.units import ByteRange, Offset, TimestampMs
from tests.faults.fault_acts import Act, Outcome, command, function, upload_event
from tests.faults.faulty_world import FRAGMENT_BYTES, KEYS, ORDERS, REBUILT, FaultyWorld, segments_directory

GRANTED = "arn:aws:iam::1:role/a", "%2F/orders*"
GRANT = command("access", "grant", *GRANTED)
POLICY = command("policy", "set", "all", "--streams", "*/*", "--max-age", "36500d")
DELETE = command("delete", "orders", "--yes", "--by", "alice")
_HOUR_S = 3600
LOOKS = 2
"""Of upload function and rebuild, at bytes before they judge them."""


def pass_hours(world: FaultyWorld, hours: int) -> None:
    """Let hours go by at AWS, and tell this process."""
    world.network.ahead_s += hours * _HOUR_S
    world.objects.info(KEYS.stream_note(ORDERS.incarnation))  # whose answer tells what time it is


def later(days: int) -> Act:
    """Let days go by at AWS: what is to be deleted after a while is due."""

    def act(world: FaultyWorld) -> Outcome:
        pass_hours(world, 24 * days)
        return Outcome(b"")

    return act


def leave_garbage(world: FaultyWorld) -> Outcome:
    """Put an object that belongs to nothing among the fragments."""
    world.objects.put(KEYS.fragment(ORDERS.incarnation, Offset(0), 7), b"of a compaction that died")
    return Outcome(b"")


def log_archived(world: FaultyWorld) -> Outcome:
    """Leave an object of a recovery log, of which the archive has everything."""
    return _log(world, "node-1", find_rolled(segments_directory())[:1])


def log_lost(world: FaultyWorld) -> Outcome:
    """Leave what two nodes logged of a segment that nobody can stage any more, and of an archived one before it."""
    for event in world.staged:
        world.objects.delete(event.staged_key)
    world.staged.clear()
    rolled = find_rolled(segments_directory())[: len(world.uploaded) + 1]
    for node in ("node-1", "node-2"):
        _log(world, node, rolled[-2:])
    return Outcome(b"")


def _log(world: FaultyWorld, node: str, slices: Iterable[SegmentSlice]) -> Outcome:
    for number, one in enumerate(slices, start=1):
        data = one.path.read_bytes()[one.position : one.end]
        run = LoggedRun(ORDERS, one.first_offset, one.next_offset, data)
        world.objects.put(KEYS.span(node, TimestampMs(number)), span_object([run]))
    return Outcome(b"")


def delivered(act: Act) -> Act:
    """Have what an act announces archived at once, without faults."""

    def archiving(world: FaultyWorld) -> Outcome:
        put = EventBridgeBus.put

        def put_and_archive(bus: EventBridgeBus, *, source: str, detail_type: str, detail: str) -> None:
            put(bus, source=source, detail_type=detail_type, detail=detail)
            event = event_of(json.dumps({"source": source, "detail-type": detail_type, "detail": json.loads(detail)}))
            assert isinstance(event, SegmentRolled)
            with world.network.in_order():
                Uploader(world.table, world.objects, KEYS, FRAGMENT_BYTES).upload(event)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EventBridgeBus, "put", put_and_archive)
            return act(world)

    return archiving


def damage_staged(world: FaultyWorld) -> Outcome:
    """Have the upload function find a damaged segment: it is in quarantine then."""
    event = world.staged[0]
    sound = world.objects.get_range(event.staged_key, ByteRange(0, event.size_bytes)).data
    world.objects.put(event.staged_key, sound[:-1] + bytes((sound[-1] ^ 0xFF,)))
    info = world.objects.info(event.staged_key)
    assert info is not None
    return function("upload", lambda _: upload_event(replace(event, etag=info.etag)))(world)


def archive_aside(world: FaultyWorld) -> Outcome:
    """Archive segments that were put into quarantine as they were read wrong, by both looks."""
    for event in world.staged:
        if world.table.quarantine(ORDERS.incarnation, event.first_offset, event.next_offset) is not None:
            if world.struck < LOOKS:
                return Outcome(b"", f"{event} is in quarantine, though it was read wrong but once")
            _archive_again(world, event.first_offset)
    return Outcome(b"")


def archive_sound(world: FaultyWorld) -> Outcome:
    """Archive a sound copy of the segment that is in quarantine."""
    _archive_again(world, world.staged[0].first_offset)
    return Outcome(b"")


def _archive_again(world: FaultyWorld, first: Offset) -> None:
    (rolled,) = (one for one in find_rolled(segments_directory()) if one.first_offset == first)
    event = stage(rolled, ORDERS, world.objects, KEYS)
    Uploader(world.table, world.objects, KEYS, FRAGMENT_BYTES).upload(event)


def rebuild(*names: str) -> Act:
    """Rebuild into a table of its own.

    What two looks found damaged is told by each later run into the same table, by design: one that was read wrong so
    often is rebuilt into an empty table.
    """
    run = command("rebuild", *names, "--to-table", REBUILT, "--jobs", "1")

    def act(world: FaultyWorld) -> Outcome:
        if world.is_told_damaged:
            if world.struck < LOOKS:
                return Outcome(b"", "an object is told to be damaged, though it was read wrong but once")
            with world.network.in_order():
                world.empty(REBUILT)
        outcome = run(world)
        world.is_told_damaged = outcome.problem is not None and "not read: " in outcome.problem
        return outcome

    return act


def first_aside(world: FaultyWorld) -> tuple[str]:
    """Return the argument that names the segment in quarantine."""
    return (str(world.staged[0].first_offset),)


def hold_id(world: FaultyWorld) -> tuple[str]:
    """Return the id of the hold, also after its release."""
    holds = world.table.holds(ORDERS.incarnation)
    world.subject = holds[0].id if holds else world.subject
    return (world.subject,)


def job_id(world: FaultyWorld) -> tuple[str]:
    """Return the id of the job, also after it was deleted."""
    jobs = JobStore(world.table).page(None, 1).jobs
    world.subject = jobs[0].id if jobs else world.subject
    return (world.subject,)
