"""`coldstream shards list`, `show` and `history`: what the archive knows of sharded streams, without a broker."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from coldstream.cli.options import Output, Vhost
from coldstream.cli.shards_options import LogicalName, map_to_json, select_maps
from coldstream.cli.stores import open_archive
from coldstream.terminal.output import Format, printable, write, write_json, write_table
from coldstream.units import format_timestamp


def list_shards(
    *,
    vhost: Annotated[str | None, typer.Option(help="Only those of this virtual host.", metavar="VHOST")] = None,
    output: Output = Format.TEXT,
) -> None:
    """List the sharded streams. Example: `coldstream shards list`."""
    found = select_maps(None, vhost)
    if output is Format.JSON:
        for one in found:
            write_json(map_to_json(one))
        return
    write_table(
        ("vhost", "name", "kind", "hash", "partitions", "version", "revision", "state"),
        [
            (
                one.vhost,
                one.name,
                one.kind,
                one.newest.hash,
                len(one.newest.partitions),
                one.newest.version,
                one.revision,
                "changing" if one.is_changing else "settled",
            )
            for one in found
        ],
    )


def show(name: LogicalName, *, vhost: Vhost = "/", output: Output = Format.TEXT) -> None:
    """Show the versions, partitions and lineage of a sharded stream. Example: `coldstream shards show orders`."""
    (found,) = select_maps(name, vhost)
    if output is Format.JSON:
        write_json(map_to_json(found))
        return
    write(printable(f"{found.name} in vhost {found.vhost}: {found.kind}, revision {found.revision}"))
    write(printable(f"definition: {found.definition}"))
    write("")
    write_table(
        ("version", "since", "bound", "hash", "partitions"),
        [
            (
                one.version,
                format_timestamp(one.since),
                None if one.bound_at is None else format_timestamp(one.bound_at),
                one.hash,
                " ".join(map(str, one.partitions)),
            )
            for one in found.versions
        ],
    )
    write("")
    write_table(
        ("partition", "name", "node", "start", "incarnation", "deleted"),
        [
            (
                one.number,
                one.name,
                one.node,
                one.start,
                one.incarnation,
                None if one.deleted_at is None else format_timestamp(one.deleted_at),
            )
            for one in found.partitions
        ],
    )
    for edge in found.lineage:
        upto = "its end, which is not known yet" if edge.seal is None else str(edge.seal)
        write(f"partition {edge.child} from {edge.child_from} comes after partition {edge.parent} up to {upto}")


def history(name: LogicalName, *, vhost: Vhost = "/", output: Output = Format.TEXT) -> None:
    """Show what changed the map of a sharded stream, oldest first. Example: `coldstream shards history orders`."""
    from coldstream.store.shard_maps import map_events

    select_maps(name, vhost)
    events = list(map_events(open_archive().table, vhost, name))
    if output is Format.JSON:
        for event, after in events:
            write_json({**asdict(event), "map": map_to_json(after)})
        return
    write_table(
        ("at", "revision", "change", "version", "by", "detail"),
        [
            (format_timestamp(event.at), event.revision, event.kind, after.newest.version, event.by, event.detail)
            for event, after in events
        ],
    )
