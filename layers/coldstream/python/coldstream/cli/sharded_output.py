"""`coldstream describe` of a logical name: what the sharded stream is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coldstream.cli.shards_options import map_to_json
from coldstream.terminal.output import Format, printable, write, write_json

if TYPE_CHECKING:
    from coldstream.manifest.shard_map import ShardMap


def show_logical_name(found: ShardMap, output: Format) -> None:
    """Show the kind, versions and partitions of a sharded stream, and whether it is changing."""
    if output is Format.JSON:
        write_json({**map_to_json(found), "is_changing": found.is_changing})
        return
    lines = [
        ("vhost", found.vhost),
        ("sharded stream", found.name),
        ("kind", found.kind),
        ("version", f"{found.newest.version} of revision {found.revision}"),
        ("hash", found.newest.hash),
        ("state", "changing" if found.is_changing else "settled"),
        ("partitions", f"{len(found.current)}, and {len(found.partitions) - len(found.current)} of earlier versions"),
        *(("", one.name) for one in found.current),
    ]
    for label, value in lines:
        write(f"{label:<18}{printable(value)}")
