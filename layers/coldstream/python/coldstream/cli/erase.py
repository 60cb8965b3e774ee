"""`coldstream erase`: the bytes of some messages go, for data protection; everything else of their stream stays."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.confirmation import confirm
from coldstream.cli.erase_output import selection_text, show_forecast, show_report
from coldstream.cli.options import By, DryRun, Incarnation, Name, Output, Vhost, Yes, words
from coldstream.cli.progress import progress
from coldstream.cli.quantities import duration_ms_of
from coldstream.cli.stopping import stop_on_signals
from coldstream.cli.stores import open_stores
from coldstream.terminal.exits import ExitCode
from coldstream.terminal.output import Format, printable
from coldstream.terminal.ranges import OffsetSelection

if TYPE_CHECKING:
    from coldstream.erase.report import ErasureReport
    from coldstream.erase.run import Eraser
    from coldstream.erase.selection import Selection
    from coldstream.lifecycle.stores import LifecycleStores
    from coldstream.manifest.stream import StreamId


def erase(
    name: Name,
    *,
    offsets: Annotated[
        str | None,
        typer.Option(help="Offsets A:B, from A up to, not including, B. Without B up to the tail.", metavar="A:B"),
    ] = None,
    filter_value: Annotated[
        str | None,
        typer.Option(help="Messages that say this filter value themselves, as those do that came by AMQP."),
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="Messages with this key, by which super streams route: the annotation x-routing-key, or the property"
            " message_id."
        ),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            help="Messages with this value in a field: properties.user_id=alice, application_properties.NAME=VALUE,"
            " message_annotations.NAME=VALUE. May be repeated; all must match.",
            metavar="FIELD=VALUE",
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(
            help="Messages for which this function is true. It is called with each one: offset, timestamp, body,"
            " properties and the other sections.",
            metavar="MODULE:FUNCTION",
        ),
    ] = None,
    reason: Annotated[
        str,
        typer.Option(
            help="Why: a ticket, a request. It stays in the journal for good.", callback=words, metavar="TEXT"
        ),
    ] = "",
    grace: Annotated[
        str | None,
        typer.Option(
            help="Time until the sweep may delete the old objects, such as 2h or 0. Default: until the last URL that"
            " was given out has expired.",
            metavar="TIME",
        ),
    ] = None,
    with_quarantine: Annotated[
        bool,
        typer.Option(
            "--with-quarantine",
            help="First delete other copies of the bytes: segments in quarantine or staged, unfinished uploads,"
            " uncommitted objects.",
        ),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what was interrupted.")] = False,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    by: By,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Erase the bytes of messages for good; offsets stay.

    Chunks and timestamps stay as they are, too. Say at least one of --offsets, --filter-value, --key, --property and
    --where; a message must meet them all. Readers find an empty message in its place. The journal keeps who erased
    what, when and why, and salted digests of values instead of the values. The old objects go with the next sweep after
    --grace. The broker's own copy, consumers and exported tables are not touched. Example: `coldstream erase orders
    --property properties.user_id=alice --reason 'ticket 4711' --dry-run`.
    """
    from coldstream.store.reserved import StreamAction, check_not_reserved
    from coldstream.store.streams import select_streams

    span = None if offsets is None else OffsetSelection.from_text(offsets)
    grace_ms = duration_ms_of("--grace", grace)
    conditions = _conditions(filter_value, key, properties or [], where)
    _check(span, conditions, is_resumed=resume)
    stores = open_stores()
    check_not_reserved(stores.table, vhost, name, StreamAction.ERASE, incarnation=incarnation)
    (stream,) = select_streams(stores.table, vhost, [name], incarnation=incarnation)
    if resume:
        reports = _resume(_eraser(stores, None), stream, conditions)
    else:
        selection = _selection(stores, stream, span, conditions)
        if dry_run:
            _forecast(stores, stream, selection, output)
            return
        confirm(f"erase messages of {stream} for good, {selection_text(selection)}?", yes=yes)
        eraser = _eraser(stores, grace_ms)
        reports = [_begin(eraser, stream, selection, reason, by, with_copies=with_quarantine)]
    for report in reports:
        show_report(report, stores.now(), output)
    if not all(report.is_done for report in reports):
        typer.echo(printable(f"interrupted; `coldstream erase {name} --resume` goes on"), err=True)
        raise typer.Exit(ExitCode.INTERRUPTED)


def _conditions(
    filter_value: str | None, key: str | None, properties: list[str], where: str | None
) -> Selection | None:
    """Return what selects messages by their contents, None if nothing does."""
    from coldstream.erase.conditions import read_conditions
    from coldstream.terminal.user_function import load_function

    found = read_conditions(filter_value, key, properties, where)
    return found if found is None or where is None else found.with_predicate(load_function(where, "--where"))


def _check(span: OffsetSelection | None, conditions: Selection | None, *, is_resumed: bool) -> None:
    from coldstream.errors import InvalidSettingError

    if is_resumed:
        is_function_alone = conditions is None or not (
            conditions.filter_value or conditions.key or conditions.properties
        )
        if span is not None or not is_function_alone:
            raise InvalidSettingError("--resume", "goes on with what was selected: leave out all but --where")
    elif span is None and conditions is None:
        raise InvalidSettingError("--offsets", "say --offsets, --filter-value, --key, --property or --where")


def _selection(
    stores: LifecycleStores, stream: StreamId, span: OffsetSelection | None, conditions: Selection | None
) -> Selection:
    from coldstream.erase.conditions import within

    if span is None:
        assert conditions is not None
        return conditions
    return within(stores.table, stream, conditions, span.first_offset, span.next_offset)


def _eraser(stores: LifecycleStores, grace_ms: int | None) -> Eraser:
    """Make an eraser that Ctrl-C and SIGTERM stop, so that the manifest learns how far it came."""
    from coldstream.erase.run import Eraser

    should_stop = stop_on_signals().is_set
    return Eraser(stores, grace_ms=grace_ms, spool_dir=_spool_dir(), should_stop=should_stop)


def _spool_dir() -> Path | None:
    text = os.environ.get("COLDSTREAM_SPOOL_DIR")
    return Path(text) if text else None


def _begin(
    eraser: Eraser, stream: StreamId, selection: Selection, reason: str, by: str, *, with_copies: bool
) -> ErasureReport:
    from coldstream.errors import OtherCopiesError

    try:
        erasure, scope, found = eraser.begin(stream, selection, reason=reason, by=by, with_copies=with_copies)
    except OtherCopiesError as err:
        if not with_copies:
            err.add_note(
                "--with-quarantine deletes first what is archived as well, but no live write-ahead log; staged segments"
                " go by themselves"
            )
        raise
    # Pinned: from the first fragment to the tail of now, whatever is archived meanwhile.
    with progress("erasing", scope.data_bytes, "bytes") as advance:
        report = replace(eraser, on_bytes=advance).run(stream, erasure, scope.selection)
    return replace(report, copies=found, gaps=scope.gaps)


def _resume(eraser: Eraser, stream: StreamId, conditions: Selection | None) -> list[ErasureReport]:
    from coldstream.erase.run import unfinished_erasures
    from coldstream.erase.selection import Selection

    left = unfinished_erasures(eraser.stores, stream.incarnation)
    if not left:
        typer.echo(printable(f"no erasure of {stream} is unfinished"), err=True)
    reports = []
    for erasure in left:
        selection = Selection.from_text(erasure.where, source=f"erasure {erasure.id}")
        # Another function than the one that it began with is not loaded: the run then says which one it needs.
        if conditions is not None and conditions.function == selection.function and conditions.predicate is not None:
            selection = selection.with_predicate(conditions.predicate)
        with progress("erasing", None, "bytes") as advance:
            reports.append(replace(eraser, on_bytes=advance).run(stream, erasure, selection))
    return reports


def _forecast(stores: LifecycleStores, stream: StreamId, selection: Selection, output: Format) -> None:
    from coldstream.erase.forecast import forecast_erasure

    with progress("looking", None, "bytes") as advance:
        found = forecast_erasure(stores, stream, selection, spool_dir=_spool_dir(), on_bytes=advance)
    show_forecast(found, output)
