"""`coldstream delete` and `coldstream undelete`: a whole stream, and back until its grace is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.confirmation import confirm
from coldstream.cli.options import By, DryRun, Incarnation, Name, Output, Vhost, Yes
from coldstream.cli.quantities import duration_ms_of
from coldstream.cli.stores import open_stores
from coldstream.terminal.output import (
    PRICES,
    Format,
    count_text,
    printable,
    size_text,
    usd_text,
    write,
    write_json,
    write_table,
)
from coldstream.units import format_timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldstream.lifecycle.stores import LifecycleStores
    from coldstream.manifest.entry import Head
    from coldstream.manifest.stream import StreamId


def delete(
    name: Name,
    *,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    every: Annotated[bool, typer.Option("--all", help="Delete every incarnation of the stream.")] = False,
    grace: Annotated[
        str, typer.Option(help="Time in which `undelete` brings it back, such as 7d, 1h or 0.", metavar="TIME")
    ] = "7d",
    by: By,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Delete a stream from the archive; the broker's stream stays.

    Readers lose it at once, and agents archive nothing of it any more. Until the grace is over, `coldstream undelete`
    brings it back whole. Then the sweep removes it for good, with all that is staged and in quarantine. A stream that
    is declared again under its name is another incarnation, and is archived as usual. A held stream is not deleted.
    Example: `coldstream delete orders --grace 30d --dry-run`.
    """
    from coldstream.lifecycle.deletion import delete_stream
    from coldstream.manifest.holding import check_no_holds
    from coldstream.store.holding import read_holds
    from coldstream.store.reserved import StreamAction, check_not_reserved

    grace_ms = duration_ms_of("--grace", grace)
    assert grace_ms is not None
    stores = open_stores()
    check_not_reserved(stores.table, vhost, name, StreamAction.DELETE, incarnation=incarnation)
    heads = _heads(stores, vhost, name, incarnation, every=every)
    for head in heads:  # before any of them is deleted, and before the question
        check_no_holds(head, read_holds(stores.table, head))
    if dry_run:
        _show(heads, output, is_dry_run=True)
        return
    what = ", ".join(f"{head.stream} ({head.stream.incarnation})" for head in heads)
    confirm(f"delete {what}?", yes=yes)
    deleted = [delete_stream(stores, head.stream.incarnation, grace_ms=grace_ms, by=by) for head in heads]
    _show(deleted, output, is_dry_run=False)


def undelete(
    name: Name,
    *,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    by: By,
    output: Output = Format.TEXT,
) -> None:
    """Bring back a deleted stream, until its grace is over.

    Everything that was archived is there again, and agents archive what was published meanwhile, as far as their disks
    had room for it. Example: `coldstream undelete orders`.
    """
    from coldstream.lifecycle.deletion import undelete_stream
    from coldstream.store.reserved import StreamAction, check_not_reserved

    stores = open_stores()
    check_not_reserved(stores.table, vhost, name, StreamAction.UNDELETE, incarnation=incarnation)
    stream = _deleted(stores, vhost, name, incarnation)
    undeleted = undelete_stream(stores, stream.incarnation, by=by)
    if output is Format.JSON:
        write_json(_to_json(undeleted))
        return
    write(printable(f"{undeleted.stream} is back: {count_text(undeleted.messages, 'message')}"))


def _heads(stores: LifecycleStores, vhost: str, name: str, incarnation: str | None, *, every: bool) -> tuple[Head, ...]:
    """Read the heads of what is to be deleted. A stream that is deleted already is not found."""
    from coldstream.errors import InvalidSettingError, StreamNotFoundError
    from coldstream.store.streams import deleted_error

    if every and incarnation is not None:
        raise InvalidSettingError("--all", "means every incarnation: leave out --incarnation")
    streams = _meant(stores, vhost, name, incarnation)
    if not every:
        # The newest, even if it is deleted: else the same command, repeated, would delete the one before it.
        streams = streams[-1:]
    heads = [head for stream in streams if (head := stores.table.head(stream.incarnation)) is not None]
    found = tuple(head for head in heads if not head.is_deleted)
    if not found and heads:
        raise deleted_error(heads[-1])
    if not found:
        raise StreamNotFoundError(f"no stream {name!r} in vhost {vhost!r}")
    return found


def _deleted(stores: LifecycleStores, vhost: str, name: str, incarnation: str | None) -> StreamId:
    """Return the newest incarnation that can be undeleted, of those that are meant; else the newest that is deleted.

    If none is, it is the newest of them.
    """
    meant = _meant(stores, vhost, name, incarnation)
    heads = [head for stream in meant if (head := stores.table.head(stream.incarnation)) is not None]
    deleted = [head.stream for head in heads if head.is_deleted]
    undeletable = [head.stream for head in heads if head.can_be_undeleted]
    return (undeletable or deleted or meant)[-1]


def _meant(stores: LifecycleStores, vhost: str, name: str, incarnation: str | None) -> list[StreamId]:
    """Return the incarnations that the options name, deleted or not, the newest last."""
    from coldstream.errors import StreamNotFoundError
    from coldstream.store.streams import incarnations

    meant = [one for one in incarnations(stores.table, vhost, name) if incarnation in {None, one.incarnation}]
    if not meant:
        what = "stream" if incarnation is None else f"incarnation {incarnation!r} of stream"
        raise StreamNotFoundError(f"no {what} {name!r} in vhost {vhost!r}, deleted or not")
    return meant


def _show(heads: Sequence[Head], output: Format, *, is_dry_run: bool) -> None:
    from coldstream.store.prices import storage_usd

    saved = sum(storage_usd(head.object_bytes, objects=head.fragments) for head in heads)
    if output is Format.JSON:
        streams = [_to_json(head) for head in heads]
        write_json({"dry_run": is_dry_run, "saved_usd_a_month": round(saved, 6), "streams": streams})
        return
    write_table(
        ("vhost", "stream", "incarnation", "objects", "size", "messages", "deleted at", "removed for good from"),
        [
            (
                head.stream.vhost,
                head.stream.name,
                head.stream.incarnation,
                head.fragments,
                size_text(head.object_bytes),
                head.messages,
                None if head.deleted_at is None else format_timestamp(head.deleted_at),
                None if head.purge_at is None else format_timestamp(head.purge_at),
            )
            for head in heads
        ],
    )
    would = "would be" if is_dry_run else "will be"
    objects = sum(head.fragments for head in heads)
    typer.echo(
        f"{count_text(objects, 'object')} {would} removed after the grace, {usd_text(saved)} a month saved if all are"
        f" in STANDARD, {PRICES}",
        err=True,
    )


def _to_json(head: Head) -> dict[str, object]:
    return {
        "vhost": head.stream.vhost,
        "name": head.stream.name,
        "incarnation": head.stream.incarnation,
        "first_offset": head.first_offset,
        "next_offset": head.next_offset,
        "objects": head.fragments,
        "object_bytes": head.object_bytes,
        "messages": head.messages,
        "deleted_at": head.deleted_at,
        "purge_at": head.purge_at,
    }
