"""`coldstream gateway status`: what a running gateway serves, from where, and what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.gateway_settings import ADMIN
from coldstream.cli.options import Output
from coldstream.terminal.output import Format, duration_text, printable, size_text, write_json_text, write_table

if TYPE_CHECKING:
    from coldstream.gateway.process.status import GatewayStatus

_COLDEST = 20


def status(
    *,
    url: Annotated[
        str,
        typer.Option(envvar="COLDSTREAM_GATEWAY_URL", help="Address of the gateway's --admin.", metavar="URL"),
    ] = f"http://{ADMIN}",
    output: Output = Format.TEXT,
) -> None:
    """Show what a gateway serves, from where, and how far behind.

    One line for each process, then the subscriptions to the archive that are furthest behind. The exit code is 6 if
    clients should not be sent there. Example: `coldstream gateway status`.
    """
    from coldstream.terminal.exits import ExitCode

    found = _fetch(url)
    if output is Format.JSON:
        write_json_text(found.to_json().decode())
    else:
        _write(found)
    if not found.is_ready:
        raise typer.Exit(ExitCode.UNAVAILABLE)


def _fetch(url: str) -> GatewayStatus:
    from coldstream.cli.agent_client import check_agent_url, fetch_status
    from coldstream.gateway.process.status import GatewayStatus

    address = check_agent_url(url, option="--url", example=f"http://{ADMIN}")
    note = "is a gateway running? `coldstream gateway` starts one; the address of its --admin is --url here"
    return GatewayStatus.from_json(fetch_status(address, note), source=address)


def _write(found: GatewayStatus) -> None:
    write_table(
        (
            "process",
            "pid",
            "state",
            "connections",
            "cold",
            "live",
            "to clients",
            "from the archive",
            "behind",
            "memory",
            "archive failures",
            "resident",
        ),
        [
            (
                one.number,
                one.pid,
                one.state,
                one.report.figures.connections,
                one.report.figures.cold_subscriptions,
                one.report.figures.live_subscriptions,
                size_text(one.report.figures.bytes_to_clients_total),
                size_text(one.report.figures.archive_bytes_total),
                one.report.figures.lag_offsets,
                (
                    f"{size_text(one.report.figures.memory_used_bytes)} of"
                    f" {size_text(one.report.figures.memory_budget_bytes)}"
                ),
                sum(one.report.figures.archive_failures_total.values()),
                size_text(one.report.resident_bytes),
            )
            for one in found.processes
        ],
    )
    coldest = found.coldest(_COLDEST)
    if coldest:
        typer.echo()
        write_table(
            ("client", "vhost", "stream", "offset", "behind"),
            [(row.client, row.vhost, row.stream, row.offset, row.behind) for row in coldest],
        )
    for line in _words(found):
        typer.echo(printable(line), err=True)


def _words(found: GatewayStatus) -> list[str]:
    from coldstream.units import format_timestamp

    figures = found.figures()
    where = f"coldstream {found.version}, {found.mode}, at {found.listen}"
    return [
        (
            f"{figures.connections} connections, {figures.cold_subscriptions} subscriptions read the archive,"
            f" {figures.live_subscriptions} the broker; {figures.takeovers_total} have begun in the archive,"
            f" {figures.handovers_total} gone on to the broker, {figures.returns_total} gone back;"
            f" {sum(figures.gaps_total.values())} gaps"
        ),
        (
            f"{where}, {format_timestamp(found.at)}, up for {duration_text(found.up_s)};"
            f" {found.restarts} processes started again"
        ),
        *(f"problem: {problem}" for problem in found.problems),
        *(f"warning: the archive doesn't answer: {problem}" for problem in found.archive_problems),
    ]
