"""`coldstream shards apply` and `status`: sharded streams brought about at the broker, and held against it."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.options import BROKER, By, DryRun, Output
from coldstream.cli.quantities import duration_ms_of
from coldstream.cli.shards_options import (
    AMQP,
    MANAGEMENT,
    AmqpBroker,
    Broker,
    Management,
    OptionalName,
    ShardBrokers,
    map_to_json,
    read_definitions,
    select_maps,
)
from coldstream.cli.stopping import signals_of_a_command, stop_on_signals
from coldstream.cli.stores import open_archive
from coldstream.terminal.exits import ExitCode, exit_code_of
from coldstream.terminal.output import Format, printable, write, write_json

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from coldstream.errors import ColdstreamError
    from coldstream.shards.apply import ApplyReport
    from coldstream.shards.context import ShardContext
    from coldstream.shards.definition import ShardDefinition
    from coldstream.shards.key_check import KeyCheck
    from coldstream.shards.status import ShardStatus

_LOOK_AGAIN_S = 2.0
_LOOK_FOR_SIGNALS_S = 0.2


def apply(
    file: Annotated[
        str | None,
        typer.Argument(
            help="The definitions, TOML or JSON; - is standard input. Default: those of the last time.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    *,
    by: By,
    wait: Annotated[
        str | None,
        typer.Option(help="Wait up to so long for producers, such as 10m, and go on.", metavar="TIME"),
    ] = None,
    watch: Annotated[
        str | None,
        typer.Option(
            help="Apply again each time so long has gone by, until Ctrl-C: nodes that join get shards.", metavar="TIME"
        ),
    ] = None,
    producers_restarted: Annotated[
        bool, typer.Option("--producers-restarted", help="You know that no producer from before the change is left.")
    ] = False,
    replay: Annotated[
        bool, typer.Option("--replay", help="Make changes that need a replay of all that is archived.")
    ] = False,
    dry_run: DryRun = False,
    management: Management = MANAGEMENT,
    amqp_broker: AmqpBroker = AMQP,
    broker: Broker = BROKER,
    output: Output = Format.TEXT,
) -> None:
    """Bring sharded streams about as they are defined.

    What is there as it should be stays, or is adopted; what differs is refused, and told. Run it again at any time: it
    goes on from where it stopped. What it has to wait for, it tells. It ends with 7 if a node with shards does not run.
    Examples: `coldstream shards apply shards.toml --dry-run`, `coldstream shards apply --wait 10m`.
    """
    from coldstream.shards.context import ShardContext
    from coldstream.shards.replay import ArchiveReplay

    archive = open_archive()
    brokers = ShardBrokers(management, amqp_broker, broker)
    wait_ms, watch_ms = duration_ms_of("--wait", wait), duration_ms_of("--watch", watch)
    deadline = time.monotonic() + (wait_ms or 0) / 1000

    def context_of(vhost: str) -> ShardContext:
        return ShardContext(
            archive.table,
            archive.objects,
            archive.keys,
            brokers.of(vhost),
            archive.objects.clock,
            by=by,
            are_producers_restarted=producers_restarted,
            may_replay=replay,
            replay=ArchiveReplay(archive.table, archive.objects, broker),
        )

    with signals_of_a_command():
        stopped = stop_on_signals()
        while True:
            definitions = read_definitions(file, archive.table)
            reports, errors = _apply_all(definitions, context_of, dry_run=dry_run)
            is_waiting = any(report.waiting for report in reports)
            is_last = dry_run or (watch_ms is None and not (is_waiting and time.monotonic() < deadline))
            _show(reports, errors, output, is_last=is_last)
            # Only when watching: an error may pass by itself, as a broker that does not answer.
            if is_last or (errors and watch_ms is None) or _pause(stopped, watch_ms):
                break
            file = None if file == "-" else file  # read once: the maps keep what it said
    raise typer.Exit(_code(reports, errors))


def status(
    name: OptionalName = None,
    *,
    vhost: Annotated[str | None, typer.Option(help="Virtual host. Default with a name: /.", metavar="VHOST")] = None,
    check_keys: Annotated[
        str | None,
        typer.Option(
            help="Also look whether archived messages are where their routing keys lead: properties.NAME,"
            " application_properties.NAME or message_annotations.NAME.",
            metavar="FIELD",
        ),
    ] = None,
    management: Management = MANAGEMENT,
    amqp_broker: AmqpBroker = AMQP,
    broker: Broker = BROKER,
    output: Output = Format.TEXT,
) -> None:
    """Hold the broker against the maps.

    It tells what is missing, differs or is extra, which nodes with shards do not run, and what is waited for. It ends
    with 7 if the broker differs, or such a node does not run. Example: `coldstream shards status orders`.
    """
    from coldstream.replay.routing import RoutingKey
    from coldstream.shards.key_check import check_keys as check
    from coldstream.shards.status import status_of

    key = None if check_keys is None else RoutingKey.parse(check_keys, "--check-keys")
    brokers = ShardBrokers(management, amqp_broker, broker)
    found = [status_of(brokers.of(one.vhost), one) for one in select_maps(name, vhost)]
    for one in found:
        archive = None if key is None else open_archive()
        keys = None if archive is None or key is None else check(archive.table, archive.objects, one.found, key)
        _show_status(one, keys, output)
    raise typer.Exit(ExitCode.OK if all(one.is_well for one in found) else ExitCode.REFUSED)


def _apply_all(
    definitions: tuple[ShardDefinition, ...], context_of: Callable[[str], ShardContext], *, dry_run: bool
) -> tuple[list[ApplyReport], list[tuple[ShardDefinition, ColdstreamError]]]:
    from coldstream.errors import ColdstreamError
    from coldstream.shards.apply import apply_shards

    reports: list[ApplyReport] = []
    errors: list[tuple[ShardDefinition, ColdstreamError]] = []
    for one in definitions:
        try:
            reports.append(apply_shards(context_of(one.vhost), one, dry_run=dry_run))
        except ColdstreamError as err:  # one that is refused does not keep the others from being applied
            errors.append((one, err))
    return reports, errors


def _pause(stopped: threading.Event, watch_ms: int | None) -> bool:
    """Wait until it is time to apply again; tell whether the command is to stop."""
    until = time.monotonic() + (_LOOK_AGAIN_S if watch_ms is None else watch_ms / 1000)
    while not stopped.is_set() and (left_s := until - time.monotonic()) > 0:
        time.sleep(min(left_s, _LOOK_FOR_SIGNALS_S))
    return stopped.is_set()


def _show(
    reports: list[ApplyReport], errors: list[tuple[ShardDefinition, ColdstreamError]], output: Format, *, is_last: bool
) -> None:
    for report in reports:
        if output is Format.JSON:
            if report.done or is_last:
                write_json(
                    {
                        "vhost": report.vhost,
                        "name": report.name,
                        "dry_run": report.is_dry_run,
                        "done": report.done,
                        "waiting": report.waiting,
                        "gone": report.gone,
                    }
                )
            continue
        for sentence in report.done:
            write(printable(f"{report.name}: {'would ' if report.is_dry_run else ''}{sentence}"))
        if not is_last:
            continue
        if not report.done and not report.waiting:
            write(printable(f"{report.name}: nothing to do"))
        for sentence in report.waiting:
            write(printable(f"{report.name}: waiting for {sentence}"))
        for sentence in report.gone:
            typer.echo(printable(f"{report.name}: {sentence}"), err=True)
    for definition, error in errors:
        typer.echo(printable(f"failed: {definition.name}: {error}"), err=True)


def _code(reports: list[ApplyReport], errors: list[tuple[ShardDefinition, ColdstreamError]]) -> int:
    if errors:
        return exit_code_of(type(error) for _, error in errors)
    return ExitCode.REFUSED if any(report.gone for report in reports) else ExitCode.OK


def _show_status(one: ShardStatus, keys: KeyCheck | None, output: Format) -> None:
    found = one.found
    if output is Format.JSON:
        lines = [
            {"kind": line.kind, "what": line.what, "detail": line.detail, "apply_mends_it": line.is_mendable}
            for line in one.drift
        ]
        told = {**map_to_json(found), "drift": lines, "gone": one.gone, "waiting": one.waiting}
        write_json(told if keys is None else {**told, "keys": asdict(keys)})
        return
    newest = found.newest
    state = "changing" if found.is_changing else "settled"
    write(
        printable(
            f"{found.name} in vhost {found.vhost}: {found.kind}, {len(newest.partitions)} partitions by {newest.hash},"
            f" version {newest.version}, {state}"
        )
    )
    for sentence in (*map(str, one.drift), *one.gone, *(f"waiting: {text}" for text in one.waiting)):
        write(printable(f"  {sentence}"))
    if one.is_well and not one.waiting:
        write("  the broker is as the map says")
    if keys is not None:
        _show_keys(keys)


def _show_keys(keys: KeyCheck) -> None:
    write(f"  of {keys.looked_at} messages, {keys.in_place} are where their key leads; {keys.without_key} have no key")
    if keys.clients is not None:
        write(f"  their producers hash as: {keys.clients}")
    for one in keys.misrouted:
        belongs = "no partition" if one.belongs is None else f"partition {one.belongs}"
        write(printable(f"  misrouted: offset {one.offset} of partition {one.partition}, key {one.key!r}: {belongs}"))
