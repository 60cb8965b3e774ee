"""The items of a group in the manifest table, and how their keys and bytes read.

    #groups                         {sha256 of the stream's names}#{that of the group}      the groups there are
    #groups#{sha256 of all three}   group                     seats and owners (`group_state`)
                                    member#{session}          a session's heartbeat: its revision counts the beats
                                    position#{number, 4 digits}    up to where a partition is done (`positions`)
                                    start                     where the group began (`group_start`)

A group's item is never deleted, so its revision only grows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import takewhile

from coldstream.errors import BadVersionError, CorruptionError, LostRaceError
from coldstream.groups.group_state import GroupState
from coldstream.manifest.state_item import StateItem
from coldstream.manifest.stream import check_name
from coldstream.plain_json import read_json
from coldstream.store.ports import ManifestReads, ManifestTable
from coldstream.store.shard_maps import map_key

GROUPS = "#groups"
GROUP = "group"
HEARTBEATS = "member#"
POSITIONS = "position#"
VERSION = 1


@dataclass(frozen=True, slots=True)
class GroupName:
    """A group by its name and that of the sharded stream that it reads. Raises InvalidNameError."""

    vhost: str
    name: str
    group: str

    def __post_init__(self) -> None:
        check_name("group", self.group)
        map_key(self.vhost, self.name)

    def __str__(self) -> str:
        return f"group {self.group!r} of sharded stream {self.name!r} in vhost {self.vhost!r}"

    @property
    def partition(self) -> str:
        """The partition that holds the group's items."""
        # Without the lengths, two triples of names could give one text, and share a partition.
        text = f"{len(self.vhost)}:{self.vhost}{len(self.name)}:{self.name}{self.group}"
        return f"{GROUPS}#{sha256(text.encode()).hexdigest()}"

    def register(self, table: ManifestTable) -> None:
        """Write the group into the list of groups, if it is not there. Cost: one PUT."""
        content = {"version": VERSION, "vhost": self.vhost, "name": self.name, "group": self.group}
        key = f"{map_key(self.vhost, self.name)}#{sha256(self.group.encode()).hexdigest()}"
        with suppress(LostRaceError):
            table.put_state(StateItem(GROUPS, key, 1, json.dumps(content).encode()))


@dataclass(frozen=True, slots=True)
class MemberBeat:
    """A session's heartbeat as somebody sees it: how often it beat, and how long its lease is after each beat."""

    session: str
    beats: int
    lease_s: float
    item: StateItem


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group's item, at revision 0 before there is one, and the heartbeats. Not as of one moment."""

    revision: int
    state: GroupState
    beats: tuple[MemberBeat, ...]


def group_names(table: ManifestReads, vhost: str, name: str) -> list[GroupName]:
    """Return the groups of a sharded stream. Cost: one Query a page."""
    stream = map_key(vhost, name)
    found = takewhile(lambda item: item.key.startswith(stream), table.state_items(GROUPS, after=stream))
    contents = [content_of(item) for item in found]
    return [GroupName(str(one["vhost"]), str(one["name"]), str(one["group"])) for one in contents]


def look_at_group(table: ManifestReads, partition: str, *, members: int) -> GroupView:
    """Return the group's item and the heartbeats. Cost: one Query for about `members` members, however many positions.

    Raises CorruptionError.
    """
    revision, state, beats = 0, GroupState(), []
    # "group" sorts before "member#", and that before "position#". A page as long as what is looked for, and one more,
    # costs no position.
    for item in _until_positions(table.state_items(partition, page_items=members + 2)):
        if item.key == GROUP:
            revision, state = item.revision, GroupState.from_bytes(item.data, source=source_of(item))
        elif item.key.startswith(HEARTBEATS):
            beats.append(_beat_of(item))
    return GroupView(revision, state, tuple(beats))


def content_of(item: StateItem) -> dict[str, object]:
    """Return the JSON of an item. Raises CorruptionError; BadVersionError if a later release wrote it."""
    try:
        content: dict[str, object] = read_json(item.data)
        version = content["version"]
    except (ValueError, TypeError, KeyError) as err:
        raise CorruptionError(source_of(item), 0, f"malformed: {err}") from err
    if version != VERSION:
        raise BadVersionError(source_of(item), 0, "version", expected=VERSION, found=version)
    return content


def source_of(item: StateItem) -> str:
    """Name an item for error messages."""
    return f"state item {item.partition} {item.key}"


def _beat_of(item: StateItem) -> MemberBeat:
    content = content_of(item)
    lease_ms = content.get("lease_ms")
    if not isinstance(lease_ms, int) or lease_ms < 1:
        raise CorruptionError(source_of(item), 0, "a heartbeat without a lease")
    return MemberBeat(item.key.removeprefix(HEARTBEATS), item.revision, lease_ms / 1000, item)


def _until_positions(items: Iterator[StateItem]) -> Iterator[StateItem]:
    return takewhile(lambda item: item.key < POSITIONS, items)
