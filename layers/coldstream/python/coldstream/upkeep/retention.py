"""The kind `retention`: what the policies let go is removed, and what they want colder is moved, stream after stream.

Within a stream no position is needed: what was removed is not at the beginning of the log any more, and what was moved
is in its class.
"""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.jobs.run import Finished, Interrupted, JobRun, RunEnd
from coldstream.jobs.specs import RetentionSpec
from coldstream.lifecycle.retention import RetentionReport, run_retention
from coldstream.manifest.stream import StreamId
from coldstream.upkeep.archive import UpkeepArchive
from coldstream.upkeep.turns import STREAMS, StreamTurns


def run_retention_policies(run: JobRun, archive: UpkeepArchive) -> RunEnd:
    """Apply the policies to the streams of a job. Raises what is worth another attempt; what fails for good is skipped.

    With `dry_run` the job's log says what would go, and nothing does.
    """
    spec = run.spec
    assert isinstance(spec, RetentionSpec)
    stores = archive.stores
    turns = StreamTurns(run, stores.table, spec, STREAMS)
    for report in run_retention(stores, _live(turns), dry_run=spec.dry_run, should_stop=run.should_stop):
        if report.error is not None and report.error.retryable:
            raise report.error
        _tell(run, report)
        removal, moves = report.removal, report.moves
        counts = {"removed": removal.fragments, "removed_bytes": removal.object_bytes, "moved": moves.objects}
        amount = {"messages": removal.messages, "bytes_": removal.object_bytes + moves.object_bytes}
        if report.is_stopped:
            turns.move({}, **amount, **counts)
            return Interrupted()
        turns.done(report.stream, 1, **amount, **counts)
    if not turns.is_complete:
        return Interrupted()
    turns.finish()
    removed, moved = turns.sums.get("removed", 0), turns.sums.get("moved", 0)
    would = "would be" if spec.dry_run else "were"
    return Finished(f"{removed} fragments {would} removed, {moved} moved to a colder class")


def _live(turns: StreamTurns) -> Iterator[StreamId]:
    """Yield the streams that are not deleted; retention gives no report of the others."""
    for stream in turns:
        if turns.live_head(stream) is None:
            turns.done(stream, 1)
        else:
            yield stream


def _tell(run: JobRun, report: RetentionReport) -> None:
    """Say what was done to a stream, or would be, and what is left out of it."""
    stream, removal, moves = report.stream, report.removal, report.moves
    if removal.fragments:
        gone = "would be" if report.is_dry_run else "are"
        first = "nothing" if removal.first_offset is None else f"offset {removal.first_offset} on"
        run.say(
            f"{stream}: by policy {report.policy}, {removal.fragments} fragments of {removal.object_bytes} bytes {gone}"
            f" removed; what stays is {first}"
        )
    if moves.objects:
        gone = "would be" if report.is_dry_run else "are"
        run.say(
            f"{stream}: {moves.objects} fragments of {moves.object_bytes} bytes {gone} moved to {moves.storage_class}"
        )
    if removal.held is not None:
        if report.is_dry_run:
            run.say(f"{stream}: the legal hold {removal.held.id} keeps what comes then")
        else:
            run.skip(str(stream), 1, f"the legal hold {removal.held.id} keeps what policy {report.policy} lets go")
    if report.error is not None:
        run.skip(str(stream), 1, str(report.error))
