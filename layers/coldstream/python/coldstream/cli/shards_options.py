"""What the commands of `coldstream shards` share: options, and the archive and broker that they name."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from coldstream.cli.options import BROKER_HELP
from coldstream.cli.stores import open_archive

if TYPE_CHECKING:
    from coldstream.manifest.shard_map import ShardMap
    from coldstream.shards.definition import ShardDefinition
    from coldstream.shards.management_broker import ManagementShardBroker
    from coldstream.store.ports import ManifestReads

_AT_A_BROKER = "The broker"
MANAGEMENT = "http://guest:guest@localhost:15672"
AMQP = "amqp://guest:guest@localhost:5672"

LogicalName = Annotated[
    str, typer.Argument(help="Logical name of the sharded stream.", metavar="NAME", show_default=False)
]
OptionalName = Annotated[
    str | None, typer.Argument(help="Logical name. Default: every sharded stream.", metavar="NAME", show_default=False)
]
Broker = Annotated[
    str,
    typer.Option(envvar="COLDSTREAM_BROKER", help=BROKER_HELP, metavar="URI", rich_help_panel=_AT_A_BROKER),
]
AmqpBroker = Annotated[
    str,
    typer.Option(
        envvar="COLDSTREAM_AMQP_BROKER",
        help="The broker's AMQP 0.9.1, for bindings; amqps:// for TLS.",
        metavar="URI",
        rich_help_panel=_AT_A_BROKER,
    ),
]
Management = Annotated[
    str,
    typer.Option(
        envvar="COLDSTREAM_MANAGEMENT",
        help="The broker's management API, credentials percent-encoded. The user needs the tag monitoring, and to"
        " configure, write and read in the vhost.",
        metavar="URL",
        rich_help_panel=_AT_A_BROKER,
    ),
]


class ShardBrokers:
    """The broker's vhosts, each opened once."""

    def __init__(self, management: str, amqp_broker: str, broker: str) -> None:
        self._addresses = management, amqp_broker, broker
        self._opened: dict[str, ManagementShardBroker] = {}

    def of(self, vhost: str) -> ManagementShardBroker:
        """Return the broker's vhost. Costs no request. Raises InvalidSettingError."""
        from coldstream.shards.management_broker import ManagementShardBroker

        if vhost not in self._opened:
            self._opened[vhost] = ManagementShardBroker(*self._addresses, vhost)
        return self._opened[vhost]


def read_definitions(path: str | None, table: ManifestReads) -> tuple[ShardDefinition, ...]:
    """Read the definitions of a file, of standard input for `-`, or without a file those that the maps keep.

    Raises InvalidSettingError.
    """
    from coldstream.errors import InvalidSettingError
    from coldstream.shards.definition_file import MAX_TEXT_CHARACTERS, definition_of, definitions_of
    from coldstream.store.shard_maps import iter_maps

    if path is None:
        return tuple(sorted((definition_of(one.definition) for one in iter_maps(table)), key=lambda one: one.name))
    source = "standard input" if path == "-" else path
    try:
        if path == "-":
            return definitions_of(sys.stdin.read(MAX_TEXT_CHARACTERS + 1), source=source)
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  a path as it was typed
            return definitions_of(file.read(MAX_TEXT_CHARACTERS + 1), source=source)
    except (OSError, UnicodeDecodeError) as err:
        raise InvalidSettingError(source, f"cannot be read: {err}") from err


def select_maps(name: str | None, vhost: str | None) -> list[ShardMap]:
    """Return the map of a name, or all, by name. Raises StreamNotFoundError."""
    from coldstream.errors import StreamNotFoundError
    from coldstream.store.shard_maps import find_map, iter_maps

    table = open_archive().table
    if name is None:
        found: Iterable[ShardMap] = (one for one in iter_maps(table) if vhost in (None, one.vhost))
        return sorted(found, key=lambda one: (one.vhost, one.name))
    one = find_map(table, vhost or "/", name)
    if one is None:
        raise StreamNotFoundError(f"no sharded stream {name!r} in vhost {vhost or '/'!r}")
    return [one]


def map_to_json(found: ShardMap) -> dict[str, Any]:
    """Return a map for programs: its fields by name, the definition as an object."""
    import json
    from dataclasses import asdict

    return {**asdict(found), "definition": json.loads(found.definition)}
