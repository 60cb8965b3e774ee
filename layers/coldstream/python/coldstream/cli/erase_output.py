"""What `coldstream erase` shows of an erasure, for people and for programs. No value of a selection is among it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from coldstream.terminal.output import (
    PRICES,
    Format,
    count_text,
    duration_text,
    printable,
    size_text,
    usd_text,
    write,
    write_json,
)
from coldstream.units import TimestampMs, format_timestamp

if TYPE_CHECKING:
    from coldstream.erase.report import ErasureForecast, ErasureReport
    from coldstream.erase.selection import Selection

MAX_TOLD = 10


def selection_text(selection: Selection) -> str:
    """Describe a selection without its values."""
    parts = []
    if selection.next_offset is not None:
        parts.append(f"offsets {selection.first_offset} to {selection.next_offset - 1}")
    if selection.filter_value is not None:
        parts.append("by filter value")
    if selection.key is not None:
        parts.append("by key")
    parts += [f"by {field}" for field, _ in selection.properties]
    if selection.function is not None:
        parts.append(f"by {selection.function}")
    return ", ".join(parts)


def show_forecast(found: ErasureForecast, output: Format) -> None:
    """Write what an erasure would do."""
    if output is Format.JSON:
        write_json(found.to_json())
        return
    what = f"{count_text(found.messages, 'message')} in {count_text(found.fragments, 'fragment')}"
    write(f"{what} would be erased, {selection_text(found.selection)}")
    write(
        f"{count_text(found.fragments_read, 'object')} of {size_text(found.read_bytes)} would be read,"
        f" {count_text(found.fragments, 'object')} of {size_text(found.rewritten_bytes)} written anew:"
        f" {count_text(found.requests, 'request')}, {usd_text(found.cost_usd)} {PRICES}"
    )
    _tell_rest(found)
    for copy in found.copies.copies[:MAX_TOLD]:
        typer.echo(printable(f"would have to go first: {copy.kind} {copy.key}"), err=True)
    if len(found.copies.copies) > MAX_TOLD:
        typer.echo(f"and {len(found.copies.copies) - MAX_TOLD} more", err=True)


def show_report(report: ErasureReport, now: TimestampMs, output: Format) -> None:
    """Write what an erasure did."""
    if output is Format.JSON:
        write_json(report.to_json())
        return
    erasure = report.erasure
    write(
        printable(
            f"erasure {erasure.id} of {report.stream}: {count_text(erasure.messages, 'message')} erased,"
            f" {count_text(report.fragments, 'fragment')} of {report.fragments_read} written anew"
        )
    )
    if erasure.digest:
        write(f"digest {erasure.digest}")
    if report.due_at is not None:
        left_s = max(0, report.due_at - now) / 1000
        what = f"the old objects go with the first sweep after {format_timestamp(report.due_at)}"
        write(f"{what}, in {duration_text(left_s)}")
    for copy in report.copies.copies[:MAX_TOLD]:
        typer.echo(printable(f"deleted first: {copy.kind} {copy.key}"), err=True)
    _tell_rest(report)


def _tell_rest(found: ErasureForecast | ErasureReport) -> None:
    """Tell what may still hold the bytes, and which messages could not be judged."""
    if found.copies.awaiting:
        last = max(one.due_at for one in found.copies.awaiting)
        number = len(found.copies.awaiting)
        what = f"{count_text(number, 'object')} with these offsets, replaced before"
        wait = "waits" if number == 1 else "wait"
        typer.echo(f"{what}, {wait} for the sweep, too: until {format_timestamp(last)}", err=True)
    if found.unknown_filter_values:
        typer.echo(
            f"{count_text(found.unknown_filter_values, 'message')} may have had a filter value that only the broker"
            " knew, and stay: erase those by --property, with the field that the publisher takes it from",
            err=True,
        )
    if found.unreadable:
        typer.echo(
            f"{count_text(found.unreadable, 'message')} of damaged AMQP, or packed in a way that nobody knows, could"
            " not be judged, and stay: erase those by --offsets",
            err=True,
        )
    if found.gaps:
        typer.echo(
            f"{count_text(found.gaps, 'gap')} in these offsets: what is archived there later is not erased", err=True
        )
