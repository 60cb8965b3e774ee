"""Whose turn it is among single active consumers of one stream and name: an item, and every decision on it. Pure.

A consumer is known by its process's session (`groups.heartbeat`) and a number in it. They stand in the order in which
they came. At most one is active; nobody takes that from a process that lives: it releases it.

    a stream by itself             the first is to be active
    a partition of a super stream  the one at the partition's place, modulo how many there are: so they share the load

The bytes are JSON: `{"version": 1, "vhost": …, "stream": …, "name": …, "place": …, "waiting": [[session, number], …],
"active": [session, number] or null, "epoch": …}`. `epoch` counts who was active.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from hashlib import sha256

from coldstream.errors import BadVersionError, CorruptionError
from coldstream.plain_json import read_json

VERSION = 1
MAX_CONSUMERS = 2000
"""Of one name and stream, in all processes: the item stays below 150 KB."""


@dataclass(frozen=True, slots=True, order=True)
class TurnName:
    """The name that consumers share, and the stream."""

    vhost: str
    stream: str
    name: str

    @property
    def key(self) -> str:
        """The key of its item."""
        text = f"{len(self.vhost)}:{self.vhost}{len(self.stream)}:{self.stream}{self.name}"
        return sha256(text.encode(errors="surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, order=True)
class TurnTaker:
    """One consumer."""

    session: str
    number: int


@dataclass(frozen=True, slots=True)
class Turns:
    """The consumers of a name, and who is active. `place` is the partition's in its super stream, None without one."""

    takers: tuple[TurnTaker, ...] = ()
    active: TurnTaker | None = None
    epoch: int = 0
    place: int | None = None

    @property
    def due(self) -> TurnTaker | None:
        """Whose turn it is to be active, None if nobody is there."""
        if not self.takers:
            return None
        return self.takers[0 if self.place is None else self.place % len(self.takers)]

    def joined(self, taker: TurnTaker, place: int | None) -> Turns:
        """Add a consumer, at the end."""
        return self if taker in self.takers else replace(self, takers=(*self.takers, taker), place=place)

    def left(self, taker: TurnTaker) -> Turns:
        """Take a consumer out. It must have stopped before, if it was active."""
        takers = tuple(one for one in self.takers if one != taker)
        return replace(self, takers=takers, active=None if self.active == taker else self.active)

    def living(self, sessions: Collection[str]) -> Turns:
        """Take out the consumers of all other sessions: those are over for good."""
        takers = tuple(one for one in self.takers if one.session in sessions)
        is_active_there = self.active is not None and self.active.session in sessions
        return replace(self, takers=takers, active=self.active if is_active_there else None)

    def released(self, taker: TurnTaker) -> Turns:
        """Let go of the turn."""
        return replace(self, active=None) if self.active == taker else self

    def claimed(self) -> Turns:
        """Give the turn to whose it is, if nobody has it."""
        due = self.due
        return self if self.active is not None or due is None else replace(self, active=due, epoch=self.epoch + 1)

    def to_bytes(self, name: TurnName) -> bytes:
        """Encode."""
        active = None if self.active is None else [self.active.session, self.active.number]
        content = {
            "version": VERSION,
            "vhost": name.vhost,
            "stream": name.stream,
            "name": name.name,
            "place": self.place,
            "waiting": [[one.session, one.number] for one in self.takers],
            "active": active,
            "epoch": self.epoch,
        }
        return json.dumps(content).encode()

    @classmethod
    def from_bytes(cls, data: bytes, *, source: str) -> Turns:
        """Decode. Raises CorruptionError; BadVersionError if a later release wrote it."""
        try:
            content = read_json(data)
            if content["version"] != VERSION:
                raise BadVersionError(source, 0, "version", expected=VERSION, found=content["version"])
            takers = tuple(TurnTaker(str(session), int(number)) for session, number in content["waiting"])
            active = None if content["active"] is None else TurnTaker(*content["active"])
            return cls(takers, active, int(content["epoch"]), content["place"])
        except (ValueError, TypeError, KeyError) as err:
            raise CorruptionError(source, 0, f"malformed: {err}") from err
