"""What becomes of the archive's copy after a load: with `after_load: delete`, the loaded beginning goes.

Only a whole beginning can go: a load with a lower cut, or one that leaves out messages by their times, would take along
what it never loaded. Holds and retention's floor are respected as by `coldstream truncate`, which this is.
"""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.errors import HeldError, InvalidInputError
from coldstream.jobs.run import JobRun
from coldstream.jobs.specs import LoadSpec
from coldstream.lifecycle.truncation import truncate, up_to_offset
from coldstream.manifest.spec import FIRST, AtOffset, AtTimestamp, parse_offset_spec
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestReads
from coldstream.store.reserved import StreamAction, check_not_reserved
from coldstream.units import TimestampMs
from coldstream.worker.load_cursor import LoadCursor
from coldstream.worker.tools import WorkerTools

_FIELD = "after_load"


def check_deletable(table: ManifestReads, spec: LoadSpec, streams: Sequence[StreamId]) -> None:
    """Raise InvalidInputError, which says why, unless all that a load's end deletes is what it loads."""
    now = TimestampMs(0)  # only whether it is a time counts here, not which
    start = parse_offset_spec(spec.start, now)
    end = None if spec.end is None else parse_offset_spec(spec.end, now)
    if isinstance(end, AtTimestamp) and spec.window_by == "message":
        raise InvalidInputError(
            _FIELD,
            "is delete, but the end is a time of each message: messages that come after it in the same chunks would be"
            " deleted, and were not loaded. Give an offset, or window_by chunk",
        )
    for stream in streams:
        check_not_reserved(table, stream.vhost, stream.name, StreamAction.TRUNCATE)
        head = table.head(stream.incarnation)
        first_offset = 0 if head is None or head.first_offset is None else head.first_offset
        if start != FIRST and not (isinstance(start, AtOffset) and start.offset <= first_offset):
            raise InvalidInputError(
                _FIELD,
                f"is delete, but the load of {stream} begins at {spec.start}, after its first archived offset"
                f" {first_offset}: what lies before was not loaded, and would be deleted. Begin at first",
            )


def delete_loaded(run: JobRun, tools: WorkerTools, cursor: LoadCursor, target: str) -> str | None:
    """Remove what was loaded, all of which the target has confirmed; return what to say of it, None if stopped before.

    Nothing goes if anything was skipped: it might be the last copy of what is missing at the target. Raises HeldError.
    """
    if run.skipped.count:
        return f"Nothing is deleted from the archive: {run.skipped.count} were skipped."
    run.checkpoint()  # raises if the job is another worker's: nothing is deleted for a job that is not ours
    stores = tools.lifecycle()
    removed = 0
    for position in cursor.positions.values():
        removal = truncate(
            stores,
            position.stream.incarnation,
            up_to_offset(position.done_to),
            why=f"job {run.job.id} has loaded it into {target}",
            by=f"job {run.job.id}",
            should_stop=run.should_stop,
        )
        removed += removal.fragments
        if removal.is_stopped:
            return None
        if removal.held is not None:
            hold = removal.held
            raise HeldError(hold.id, hold.first_offset, hold.next_offset or position.done_to, hold.reason)
        if removal.fragments:
            run.say(f"{removal.fragments} fragments of {position.stream} before {position.done_to} are deleted")
    return f"{removed} fragments of what was loaded are deleted from the archive."
