"""`coldstream agent status`: what a running agent has archived, what it pins, and what it still has to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.agent_client import fetch_agent_status
from coldstream.cli.options import Output
from coldstream.terminal.output import Format, duration_text, printable, size_text, write_json_text, write_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coldstream.agent.monitor.status import AgentStatus, StreamStatus
    from coldstream.units import TimestampMs


def status(
    *,
    url: Annotated[
        str, typer.Option(envvar="COLDSTREAM_AGENT_URL", help="Address that the agent listens on.", metavar="URL")
    ] = "http://127.0.0.1:9478",
    output: Output = Format.TEXT,
) -> None:
    """Show what an agent has archived, and what is left to do.

    One line for each stream, the one with the greatest lag first. Example: `coldstream agent status`.
    """
    found = fetch_agent_status(url)
    if output is Format.JSON:
        write_json_text(found.to_json().decode())
        return
    streams = sorted(found.streams, key=lambda stream: _rank(stream, found.at), reverse=True)
    write_table(
        (
            "vhost",
            "stream",
            "state",
            "behind",
            "offsets behind",
            "pinned",
            "only here",
            "retention left",
            "complete from",
            "failure",
        ),
        [_row(stream, found.at) for stream in streams],
    )
    _say(found, streams)


def _rank(stream: StreamStatus, now: TimestampMs) -> tuple[float, int, str]:
    lag_s = stream.lag_s(now)
    return (-1.0 if lag_s is None else lag_s, stream.lag_offsets, stream.incarnation)


def _row(stream: StreamStatus, now: TimestampMs) -> tuple[object, ...]:
    vhost, name = stream.labels
    return (
        vhost or None,
        name,
        stream.state,
        duration_text(stream.lag_s(now)),
        stream.lag_offsets,
        size_text(stream.pinned_bytes),
        size_text(stream.orphaned_bytes),
        duration_text(stream.retention_left_s),
        stream.complete_from or None,
        stream.last_failure,
    )


def _say(found: AgentStatus, streams: Sequence[StreamStatus]) -> None:
    from coldstream.units import format_timestamp

    behind = sum(stream.lag_offsets > 0 for stream in streams)
    pinned_bytes = sum(stream.pinned_bytes for stream in streams)
    orphaned_bytes = sum(stream.orphaned_bytes for stream in streams)
    archived = (
        f"{len(streams)} streams, {behind} of them not archived to the end;"
        f" {size_text(pinned_bytes)} pinned, {size_text(orphaned_bytes)} of it held here only;"
        f" {size_text(found.disk_free_bytes)} of {size_text(found.disk_total_bytes)} free"
    )
    running = (
        f"coldstream {found.version} on {found.host} at {format_timestamp(found.at)},"
        f" up for {duration_text((found.at - found.started_at) / 1000)};"
        f" AWS answered {_ago(found.aws_contact_at, found.at)}, the broker {_ago(found.broker_contact_at, found.at)}"
    )
    logged = (
        []
        if found.log_objects is None
        else [f"recovery log: {found.log_objects} objects, complete {_ago(found.logged_at, found.at)}"]
    )
    for line in (archived, running, *logged, *(f"problem: {problem}" for problem in found.problems)):
        typer.echo(printable(line), err=True)


def _ago(at: TimestampMs | None, now: TimestampMs) -> str:
    return "never yet" if at is None else f"{duration_text(max(0, now - at) / 1000)} ago"
