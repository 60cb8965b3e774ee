"""`coldstream truncate`: the beginning of a stream goes, up to an offset or a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.confirmation import confirm
from coldstream.cli.options import By, DryRun, Incarnation, Name, Output, UrlExpiry, Vhost, Yes
from coldstream.cli.progress import progress
from coldstream.cli.quantities import TIME_HELP, time_of
from coldstream.cli.stores import open_stores
from coldstream.compact.arguments import LONGEST_URL_EXPIRY
from coldstream.terminal.output import PRICES, Format, count_text, printable, size_text, usd_text, write, write_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from coldstream.lifecycle.prefix import PrefixChoice, PrefixRemoval
    from coldstream.manifest.stream import StreamId
    from coldstream.units import TimestampMs


def truncate(
    name: Name,
    *,
    to: Annotated[
        int | None,
        typer.Option(help="Remove fragments all of whose offsets lie below this one.", min=0, metavar="OFFSET"),
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            help=f"Remove fragments all of whose chunks are older than {TIME_HELP}",
            metavar="TIME",
        ),
    ] = None,
    vhost: Vhost = "/",
    incarnation: Incarnation = None,
    by: By,
    dry_run: DryRun = False,
    url_expiry: UrlExpiry = LONGEST_URL_EXPIRY,
    yes: Yes = False,
    output: Output = Format.TEXT,
) -> None:
    """Remove the beginning of a stream for good.

    Whole fragments go. The fragment that holds the offset or the time stays, with what is before it in that fragment. A
    hold ends it: what is held, and all after it, stays. Readers lose the rest at once; its objects are deleted by the
    sweep, when the last URL for them has expired. Examples: `coldstream truncate orders --before -90d --dry-run`,
    `coldstream truncate orders --to 1000000`.
    """
    from coldstream.errors import InvalidSettingError
    from coldstream.lifecycle.prefix import foretell_removal
    from coldstream.lifecycle.truncation import truncate as truncate_stream
    from coldstream.store.reserved import StreamAction, check_not_reserved
    from coldstream.store.streams import select_streams

    if (to is None) == (before is None):
        raise InvalidSettingError("--to", "say either --to OFFSET or --before TIME")
    stores = open_stores(url_expiry)
    # By AWS's clock: by one of this machine that is ahead, younger messages than asked for would go.
    choice, where = _choice(to, before, stores.now)
    check_not_reserved(stores.table, vhost, name, StreamAction.TRUNCATE, incarnation=incarnation)
    (stream,) = select_streams(stores.table, vhost, [name], incarnation=incarnation)
    forecast = foretell_removal(stores.table, stream.incarnation, choice)
    if dry_run:
        _show(stream, forecast, output, is_dry_run=True)
        return
    if not forecast.fragments:  # nothing is left to ask
        _show(stream, forecast, output, is_dry_run=False)
        return
    what = f"{count_text(forecast.fragments, 'fragment')} of {size_text(forecast.object_bytes)}"
    confirm(f"remove {what} of {stream} for good?", yes=yes)
    with progress("truncating", forecast.fragments, "fragments") as advance:
        removal = truncate_stream(stores, stream.incarnation, choice, why=where, by=by, on_removed=advance)
    _show(stream, removal, output, is_dry_run=False)


def _choice(to: int | None, before: str | None, now: Callable[[], TimestampMs]) -> tuple[PrefixChoice, str]:
    from coldstream.errors import InvalidSettingError
    from coldstream.lifecycle.truncation import up_to_offset, up_to_time
    from coldstream.units import MAX_OFFSET, Offset

    if to is not None:
        if to > MAX_OFFSET:
            raise InvalidSettingError("--to", f"{to} is past the last offset there can be")
        return up_to_offset(Offset(to)), f"truncated to offset {to}"
    time = time_of("--before", before, now)
    assert time is not None
    return up_to_time(time), f"truncated before {before}"


def _show(stream: StreamId, removal: PrefixRemoval, output: Format, *, is_dry_run: bool) -> None:
    if output is Format.JSON:
        names = {"vhost": stream.vhost, "name": stream.name, "incarnation": stream.incarnation}
        write_json({"dry_run": is_dry_run, **names, **removal.to_json()})
        return
    would = "would be" if is_dry_run else "were" if removal.fragments != 1 else "was"
    what = f"{count_text(removal.fragments, 'object')} of {size_text(removal.object_bytes)}"
    saved = f"{usd_text(removal.saved_usd_a_month)} a month saved, {PRICES}"
    write(f"{what} with {count_text(removal.messages, 'message')} {would} removed, {saved}")
    first = "nothing is left" if removal.first_offset is None else f"the first offset is {removal.first_offset}"
    write(f"{first} afterwards" if is_dry_run else first)
    if removal.held is not None:
        write(printable(f"stopped by hold {removal.held.id}: {removal.held.reason}"))
