"""`coldstream hold`: legal holds, which nothing is removed against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import sleep
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.options import By, Incarnation, Name, Output, Vhost, words
from coldstream.cli.progress import progress
from coldstream.cli.ranges import Offsets
from coldstream.cli.stores import open_stores
from coldstream.terminal.output import Format, count_text, printable, write, write_json, write_table
from coldstream.terminal.ranges import OffsetSelection
from coldstream.units import format_timestamp

if TYPE_CHECKING:
    from coldstream.lifecycle.object_locks import LockReport
    from coldstream.lifecycle.stores import LifecycleStores
    from coldstream.manifest.entry import DeletionClaim, Hold
    from coldstream.manifest.stream import StreamId


def put(
    name: Name,
    *,
    offsets: Offsets = ":",
    reason: Annotated[
        str,
        typer.Option(help="Why: a case, a ticket. Everybody who is held up reads it.", callback=words, metavar="TEXT"),
    ],
    by: By,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    output: Output = Format.TEXT,
) -> None:
    """Hold offsets of a stream: nothing removes them.

    Retention, truncation, deletion, erasure and sweep leave them alone. Without --offsets it is the whole stream, and
    what is archived of it later. If the bucket has S3 Object Lock, each object gets a legal hold there, too. If objects
    of these offsets are being deleted, it waits for the end of that.
    Example: `coldstream hold put orders --offsets 1000:2000 --reason 'case 17'`.
    """
    from coldstream.lifecycle.holds import put_hold
    from coldstream.store.streams import select_also_deleted

    span = OffsetSelection.from_text(offsets)
    stores = open_stores()
    stream = select_also_deleted(stores.table, vhost, name, incarnation)
    hold = put_hold(
        stores,
        stream.incarnation,
        first_offset=span.first_offset,
        next_offset=span.next_offset,
        reason=reason,
        by=by,
        wait=_wait_telling(),
    )
    report = _mirror(stores, stream)
    if output is Format.JSON:
        write_json({**_to_json(stream, hold), "locked_objects": report.locked})
    else:
        write(printable(f"hold {hold.id} on {stream}, {_offsets(hold)}"))
    if stores.bucket.object_lock is False:
        typer.echo("the bucket has no S3 Object Lock: the hold binds coldstream, not others with its keys", err=True)
    _tell(stores, report)


def holds(
    name: Annotated[
        str | None, typer.Argument(help="Name of the stream. Default: every stream.", metavar="NAME")
    ] = None,
    *,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    output: Output = Format.TEXT,
) -> None:
    """List the holds: of one stream, or of all. Example: `coldstream hold list`."""
    from coldstream.store.streams import iter_streams, select_also_deleted

    stores = open_stores()
    if name is None:
        streams = iter_streams(stores.table)
    else:
        streams = iter([select_also_deleted(stores.table, vhost, name, incarnation)])
    found = [(stream, hold) for stream in streams for hold in stores.table.holds(stream.incarnation)]
    if output is Format.JSON:
        for stream, hold in found:
            write_json(_to_json(stream, hold))
        return
    write_table(
        ("vhost", "stream", "id", "first offset", "next offset", "since", "by", "reason", "incarnation"),
        [
            (
                stream.vhost,
                stream.name,
                hold.id,
                hold.first_offset,
                "no end" if hold.next_offset is None else hold.next_offset,
                format_timestamp(hold.at),
                hold.by,
                hold.reason,
                stream.incarnation,
            )
            for stream, hold in found
        ],
    )
    if not found:
        typer.echo("nothing is held", err=True)


def release(
    name: Name,
    hold_id: Annotated[str, typer.Argument(help="Id of the hold; `hold list` shows it.", metavar="ID")],
    *,
    by: By,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    output: Output = Format.TEXT,
) -> None:
    """Release a hold: what it held up may go on. Example: `coldstream hold release orders 4f9d2c81a07b`."""
    from coldstream.lifecycle.holds import release_hold
    from coldstream.store.streams import select_also_deleted

    stores = open_stores()
    stream = select_also_deleted(stores.table, vhost, name, incarnation)
    released = release_hold(stores, stream.incarnation, hold_id, by=by)
    report = _mirror(stores, stream)
    if output is Format.JSON:
        write_json({**_to_json(stream, released), "released_objects": report.released})
    else:
        write(printable(f"released hold {released.id} on {stream}, {_offsets(released)}"))
    _tell(stores, report)


def _wait_telling() -> Callable[[Sequence[DeletionClaim]], None]:
    """Return what waits a second for deletions, and tells of them the first time."""
    from coldstream.lifecycle.holds import WAIT_S

    told: list[Sequence[DeletionClaim]] = []

    def wait(claims: Sequence[DeletionClaim]) -> None:
        if not told:
            told.append(claims)
            first, end = min(one.first_offset for one in claims), max(one.next_offset for one in claims)
            typer.echo(
                f"objects of offsets {first} to {end - 1} are being deleted: the hold waits for the end of that,"
                f" until {format_timestamp(max(one.ends_at for one in claims))} at the latest",
                err=True,
            )
        sleep(WAIT_S)

    return wait


def _mirror(stores: LifecycleStores, stream: StreamId) -> LockReport:
    from coldstream.lifecycle.object_locks import mirror_holds

    with progress("Object Lock", None, "objects") as advance:
        return mirror_holds(stores, stream.incarnation, on_object=advance)


def _tell(stores: LifecycleStores, report: LockReport) -> None:
    if stores.bucket.object_lock is None:
        typer.echo(
            "whether the bucket has S3 Object Lock could not be asked, so no object's legal hold was changed there:"
            " grant s3:GetBucketObjectLockConfiguration, and run `coldstream sweep`, which does what is left",
            err=True,
        )
    if not stores.bucket.object_lock:
        return
    typer.echo(
        f"S3 legal holds: {count_text(report.locked, 'object')} put, {count_text(report.released, 'object')} released",
        err=True,
    )
    for failure in report.failures:
        typer.echo(printable(f"not done: {failure.key}: {failure.reason}"), err=True)


def _offsets(hold: Hold) -> str:
    if hold.next_offset is None:
        return f"from offset {hold.first_offset} on"
    return f"offsets {hold.first_offset} to {hold.next_offset - 1}"


def _to_json(stream: StreamId, hold: Hold) -> dict[str, object]:
    return {
        "vhost": stream.vhost,
        "name": stream.name,
        "incarnation": stream.incarnation,
        "id": hold.id,
        "first_offset": hold.first_offset,
        "next_offset": hold.next_offset,
        "reason": hold.reason,
        "by": hold.by,
        "at": hold.at,
    }
