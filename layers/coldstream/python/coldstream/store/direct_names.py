"""The names of direct streams: for each, which incarnation has it. They decide who creates a stream, and list them.

    #direct-streams      {sha256 of vhost and name}      JSON, below

    version        1
    vhost, name    the names
    incarnation    of the stream that has them
    first          the offset at which it begins
    properties     its creator's

A name is added before anything else of its stream, and removed after its stream is deleted. The revision of the item is
the time of the incarnation, nanoseconds: so whoever removes a name removes no other stream that took it meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from coldstream.errors import (
    CorruptionError,
    InvalidInputError,
    LostRaceError,
    OutcomeUnknownError,
    StreamExistsError,
)
from coldstream.manifest.appender import properties_of
from coldstream.manifest.appending import appender_in
from coldstream.manifest.entry import Head
from coldstream.manifest.state_item import StateItem
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.plain_json import read_json
from coldstream.store.ports import ManifestReads, ManifestTable
from coldstream.store.sortkeys import names_key
from coldstream.units import MAX_OFFSET, Offset

DIRECT_STREAMS = "#direct-streams"
VERSION = 1

_TRIES = 5


@dataclass(frozen=True, slots=True)
class DirectName:
    """A direct stream by its names, with what it was created with."""

    stream: StreamId
    first: Offset = Offset(0)  # noqa: RUF009  a NewType is its value
    properties: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, head: Head) -> DirectName:
        """Take it from the head of a direct stream. Raises StreamNotFoundError if a broker has the stream."""
        appender = appender_in(head)
        return cls(head.stream, appender.first, appender.properties)

    @property
    def created_ns(self) -> int:
        """When the incarnation was made, nanoseconds since the Unix epoch, and 1 or more."""
        time = self.stream.incarnation.rpartition("_")[2]
        return max(1, int(time)) if time.isdecimal() else 1

    def to_item(self) -> StateItem:
        """Return the state item."""
        content = {
            "version": VERSION,
            "vhost": self.stream.vhost,
            "name": self.stream.name,
            "incarnation": self.stream.incarnation,
            "first": self.first,
            "properties": dict(self.properties),
        }
        data = json.dumps(content, ensure_ascii=False).encode()
        return StateItem(DIRECT_STREAMS, _key(self.stream.vhost, self.stream.name), self.created_ns, data)

    @classmethod
    def of_item(cls, item: StateItem) -> DirectName:
        """Read a state item. Raises CorruptionError."""
        source = f"state item {item.partition} {item.key}"
        try:
            read = read_json(item.data)
            if read["version"] != VERSION:
                raise ValueError(f"version {read['version']} is of another release")
            stream = StreamId(read["vhost"], read["name"], Incarnation(read["incarnation"]))
            first = read["first"]
            if type(first) is not int or not 0 <= first <= MAX_OFFSET:
                raise ValueError(f"{first!r} is no offset")
            found = cls(stream, Offset(first), properties_of(read["properties"]))
        except (InvalidInputError, KeyError, TypeError, ValueError, AttributeError) as err:
            raise CorruptionError(source, 0, f"name of a direct stream: {err}") from err
        if _key(stream.vhost, stream.name) != item.key:
            raise CorruptionError(source, 0, "its content belongs at another key", expected=item.key, found=str(stream))
        return found


def find_name(table: ManifestReads, vhost: str, name: str) -> DirectName | None:
    """Return the direct stream that has a name, None if none has. Cost: one GetItem. Raises CorruptionError."""
    item = table.state_item(DIRECT_STREAMS, _key(vhost, name))
    return None if item is None else DirectName.of_item(item)


def iter_names(table: ManifestReads, *, page_items: int | None = None) -> Iterator[DirectName]:
    """Yield all direct streams that have a name, by a hash of it. Cost: one Query a page. Raises CorruptionError."""
    for item in table.state_items(DIRECT_STREAMS, page_items=page_items):
        yield DirectName.of_item(item)


def add_name(table: ManifestTable, new: DirectName) -> None:
    """Give a stream its name; again is the same. Cost: one PUT, and a GetItem if there is one of that name.

    Raises StreamExistsError if another incarnation has it; OutcomeUnknownError if no answer came, again and again.
    """
    item = new.to_item()
    for attempt in range(_TRIES):
        try:
            table.add_state(item)
        except (LostRaceError, OutcomeUnknownError) as err:
            found = table.state_item(item.partition, item.key)
            if found == item:
                return
            if found is not None:
                raise StreamExistsError(str(new.stream)) from err
            if attempt == _TRIES - 1:
                raise
        else:
            return


def remove_name(table: ManifestTable, stream: StreamId) -> bool:
    """Take its name from a stream that is deleted; return whether it had it. Cost: a GetItem, and a DELETE."""
    key = _key(stream.vhost, stream.name)
    found = table.state_item(DIRECT_STREAMS, key)
    if found is None or DirectName.of_item(found).stream != stream:
        return False
    try:
        table.delete_state(found)
    except LostRaceError:
        return False  # somebody else did; whoever has the name by now has another revision
    return True


def _key(vhost: str, name: str) -> str:
    return names_key(vhost, name).removesuffix("#")
