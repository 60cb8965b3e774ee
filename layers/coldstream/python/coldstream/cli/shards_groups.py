"""`coldstream shards groups`: the groups of consumers of a sharded stream."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from coldstream.cli.options import Name, Output, Vhost
from coldstream.terminal.exits import ExitCode
from coldstream.terminal.output import Format, printable, write_json, write_table

if TYPE_CHECKING:
    from coldstream.manifest.shard_map import ShardMap
    from coldstream.store.ports import ManifestReads


def groups(name: Name, *, vhost: Vhost = "/", output: Output = Format.TEXT) -> None:
    """List the groups of consumers of a sharded stream.

    For each partition: which member owns it, what the group has committed, and how many archived messages come after
    that. Example: `coldstream shards groups orders`.
    """
    from coldstream.cli.follow import table_name
    from coldstream.groups.listing import list_groups
    from coldstream.store.shard_maps import find_map
    from coldstream.store.table import DynamoTable

    table = DynamoTable(table_name())
    found = find_map(table, vhost, name)
    listed = list_groups(table, vhost, name)
    if found is None:
        typer.echo(f"{printable(name)} is no sharded stream", err=True)
        raise typer.Exit(ExitCode.NOT_FOUND)
    tails = _tails(table, found) if listed else {}
    rows = []
    for group in listed:
        parts = [one for one in group.partitions if one.number < len(found.partitions)]
        lags = {one.number: max(0, tails[one.number] - (one.committed or 0)) for one in parts if one.number in tails}
        if output is Format.JSON:
            lines = [asdict(one) | {"lag": lags.get(one.number)} for one in parts]
            write_json({"group": group.name, "members": list(group.members), "partitions": lines})
        rows += [
            (
                printable(group.name),
                printable(found.partitions[one.number].name),
                "nobody" if one.owner is None else printable(one.owner),
                "" if one.committed is None else one.committed,
                lags.get(one.number, ""),
            )
            for one in parts
        ]
    if output is Format.TEXT and rows:
        write_table(("group", "partition", "owner", "committed", "lag"), rows)
    if not listed:
        typer.echo("no group has read it yet; `coldstream read NAME --follow --group GROUP` begins one", err=True)


def _tails(table: ManifestReads, found: ShardMap) -> dict[int, int]:
    """Return how far each partition is archived. Cost: a GetItem a partition, and a Query for most."""
    tails: dict[int, int] = {}
    for partition in found.partitions:
        incarnation = partition.incarnation or table.incarnation_of(found.vhost, partition.name)
        head = None if incarnation is None else table.head(incarnation)
        if head is not None:
            tails[partition.number] = head.next_offset or head.floor
    return tails
