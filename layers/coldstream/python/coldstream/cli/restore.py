"""`coldstream restore`: offsets that lie in a cold storage class become readable for some days."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.confirmation import confirm
from coldstream.cli.options import DryRun, Incarnation, Name, Output, Vhost, Yes
from coldstream.cli.progress import progress
from coldstream.cli.ranges import Offsets
from coldstream.cli.stores import open_stores
from coldstream.store.object_values import RestoreTier
from coldstream.terminal.output import PRICES, Format, count_text, size_text, usd_text, write, write_json
from coldstream.terminal.ranges import OffsetSelection
from coldstream.units import format_timestamp

if TYPE_CHECKING:
    from coldstream.lifecycle.restore import RestoreReport
    from coldstream.lifecycle.stores import LifecycleStores
    from coldstream.manifest.stream import StreamId

POLL_S = 60.0
"""Between two looks at what S3 restores, which takes minutes to days. Each look is a HEAD for each cold object."""


def restore(
    name: Name,
    *,
    offsets: Offsets,
    days: Annotated[int, typer.Option(help="How long the restored copies stay.", min=1, max=3650)] = 7,
    tier: Annotated[
        RestoreTier,
        typer.Option(
            help="Bulk takes up to two days and is the cheapest; Expedited takes minutes, not for DEEP_ARCHIVE."
        ),
    ] = RestoreTier.STANDARD,
    wait: Annotated[bool, typer.Option("--wait", help="End only when all of it can be read.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Only tell how far it is.")] = False,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Make offsets in GLACIER or DEEP_ARCHIVE readable.

    S3 restores copies, and deletes them after so many days; the objects stay where they are. Asking again is harmless,
    and keeps the copies longer. Examples: `coldstream restore orders --offsets 0:100000 --dry-run`, `coldstream restore
    orders --offsets 0:100000 --days 3 --tier Bulk --wait`.
    """
    from coldstream.store.streams import select_streams

    span = OffsetSelection.from_text(offsets)
    stores = open_stores()
    (stream,) = select_streams(stores.table, vhost, [name], incarnation=incarnation)
    report = _status(stores, stream, span, days, tier)
    if not (dry_run or status):
        left = report.cold - report.running - report.cold_readable
        if left:
            confirm(f"restore {count_text(left, 'object')} for {usd_text(report.usd)} US dollars?", yes=yes)
        report = _request(stores, stream, span, days, tier)
    while wait and not (dry_run or report.is_readable):
        time.sleep(POLL_S)
        report = _status(stores, stream, span, days, tier)
    _show(stream, report, output, is_dry_run=dry_run)


def _request(
    stores: LifecycleStores, stream: StreamId, span: OffsetSelection, days: int, tier: RestoreTier
) -> RestoreReport:
    from coldstream.lifecycle.restore import request_restore

    with progress("asking", None, "objects") as advance:
        return request_restore(
            stores, stream.incarnation, span.first_offset, span.next_offset, days=days, tier=tier, on_object=advance
        )


def _status(
    stores: LifecycleStores, stream: StreamId, span: OffsetSelection, days: int, tier: RestoreTier
) -> RestoreReport:
    from coldstream.lifecycle.restore import restore_status

    with progress("looking", None, "objects") as advance:
        return restore_status(
            stores, stream.incarnation, span.first_offset, span.next_offset, days=days, tier=tier, on_object=advance
        )


def _show(stream: StreamId, report: RestoreReport, output: Format, *, is_dry_run: bool) -> None:
    if output is Format.JSON:
        names = {"vhost": stream.vhost, "name": stream.name, "incarnation": stream.incarnation}
        write_json({"dry_run": is_dry_run, **names, **report.to_json()})
        return
    write(
        f"{report.readable} of {count_text(report.objects, 'object')} ({size_text(report.object_bytes)}) can be read;"
        f" {report.running} are being restored, {report.requested} of them asked for now"
    )
    if report.expires_at is not None:
        write(f"the first restored copy goes at {format_timestamp(report.expires_at)}")
    if is_dry_run:
        write(f"restoring the rest would cost about {usd_text(report.usd)}, without reading it; {PRICES}")
