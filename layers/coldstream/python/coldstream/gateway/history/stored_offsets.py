"""The offsets that clients stored, as the manifest table keeps them beside the broker's own.

    #gateway-offsets#{sha256 of the incarnation}    {sha256 of the reference}      JSON, below

    version      1
    reference    the reference, text
    offset       the offset that was stored last
    at           when, ms since the Unix epoch by the gateway's clock

Several gateways write them. The later `at` wins, and of one millisecond the greater offset: so a write that was held up
never takes the place of what its client stored elsewhere meanwhile.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256

from coldstream.errors import BadVersionError, CorruptionError, LostRaceError, OutcomeUnknownError
from coldstream.manifest.state_item import StateItem
from coldstream.manifest.stream import Incarnation, StreamId, declared_at
from coldstream.plain_json import read_json
from coldstream.store.ports import ManifestReads, ManifestTable
from coldstream.store.streams import incarnations
from coldstream.units import MAX_OFFSET, Offset, TimestampMs

GATEWAY_OFFSETS = "#gateway-offsets"
VERSION = 1

_TRIES = 8

_CLOCKS_MS = 60_000
"""How far the broker's clock and those of gateways may be apart."""


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """An offset that was stored for a reference, and when. `revision` is that of its item, 0 before there is one."""

    incarnation: Incarnation
    reference: str
    offset: Offset
    at: TimestampMs
    revision: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """What is greater the later it was stored."""
        return self.at, self.offset

    def to_item(self) -> StateItem:
        """Encode it over the revision that it is of."""
        content = {"version": VERSION, "reference": self.reference, "offset": self.offset, "at": self.at}
        partition, key = _place(self.incarnation, self.reference)
        return StateItem(partition, key, self.revision + 1, json.dumps(content).encode())

    @classmethod
    def from_item(cls, incarnation: Incarnation, item: StateItem) -> StoredOffset:
        """Decode it. Raises CorruptionError; BadVersionError if a later release wrote it."""
        source = f"state item {item.partition} {item.key}"
        try:
            content = read_json(item.data)
            version, reference = content["version"], content["reference"]
            offset, at = content["offset"], content["at"]
        except (ValueError, TypeError, KeyError) as err:
            raise CorruptionError(source, 0, f"malformed: {err}") from err
        if version != VERSION:
            raise BadVersionError(source, 0, "version", expected=VERSION, found=version)
        if type(offset) is not int or not 0 <= offset <= MAX_OFFSET or type(at) is not int:
            raise CorruptionError(source, 0, f"{offset!r} at {at!r} is no stored offset")
        if not isinstance(reference, str) or _place(incarnation, reference) != (item.partition, item.key):
            raise CorruptionError(source, 0, "its content belongs at another key")
        return cls(incarnation, reference, Offset(offset), TimestampMs(at), item.revision)


def read_offset(table: ManifestReads, incarnation: Incarnation, reference: str) -> StoredOffset | None:
    """Return what was stored last for a reference, None if nothing was. Cost: one GetItem. Raises CorruptionError."""
    item = table.state_item(*_place(incarnation, reference))
    return None if item is None else StoredOffset.from_item(incarnation, item)


def find_offset(table: ManifestReads, stream: StreamId, reference: str) -> StoredOffset | None:
    """Return what was stored last for a stream, also before anything of this incarnation was archived.

    Until then gateways knew the incarnation before alone, and wrote it there. It is told from what that one's clients
    stored by its time: later than the declaration, by more than clocks are apart. Cost: one GetItem; if nothing is
    there, a Query, and a GetItem more if there is an earlier incarnation. Raises CorruptionError.
    """
    found = read_offset(table, stream.incarnation, reference)
    declared_ms = declared_at(stream)
    if found is not None or declared_ms is None:
        return found
    earlier = [one for one in incarnations(table, stream.vhost, stream.name) if one.incarnation < stream.incarnation]
    found = read_offset(table, earlier[-1].incarnation, reference) if earlier else None
    return found if found is not None and found.at > declared_ms + _CLOCKS_MS else None


def write_offset(table: ManifestTable, new: StoredOffset) -> StoredOffset:
    """Write an offset over what is there, unless that was stored later; return what is there then, with its revision.

    `new` has the revision that is likely to be there. Cost: one PUT; a GetItem and another PUT if it is another one.
    Raises LostRaceError if others keep writing it; UnavailableError; CorruptionError.
    """
    revision = new.revision
    for attempt in range(_TRIES):
        try:
            wanted = StoredOffset(new.incarnation, new.reference, new.offset, new.at, revision)
            table.put_state(wanted.to_item())
            return StoredOffset(new.incarnation, new.reference, new.offset, new.at, revision + 1)
        except (LostRaceError, OutcomeUnknownError):
            if attempt == _TRIES - 1:
                raise
        there = read_offset(table, new.incarnation, new.reference)
        # It may be this very write, whose answer was lost.
        if there is not None and there.order >= new.order:
            return there
        revision = 0 if there is None else there.revision
    raise AssertionError("the last attempt returns or raises")


def _place(incarnation: Incarnation, reference: str) -> tuple[str, str]:
    digest = sha256(incarnation.encode()).hexdigest()
    return f"{GATEWAY_OFFSETS}#{digest}", sha256(reference.encode(errors="surrogatepass")).hexdigest()
