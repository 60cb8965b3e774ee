"""What a stream was created with: its content type, how long it lives, and what it is a fork of.

This is kept in the stream's properties, which never change. A direct stream that no server created has none of them:
it is one of bytes that lives for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from coldstream.serve.protocol.content_type import BYTES, ContentType
from coldstream.serve.protocol.lifetime import Lifetime
from coldstream.units import Offset

_TYPE, _TTL, _EXPIRES, _ID = "content-type", "ttl", "expires-at", "serve-id"
_FILLED, _CLOSED = "serve-filled", "serve-closed"
_SOURCE, _SOURCE_ID, _AT, _ASKED, _SUB = "fork-of", "fork-of-id", "fork-at", "fork-asked", "fork-sub"


@dataclass(frozen=True, slots=True)
class ForkOrigin:
    """Where a fork begins: below `at` it has what its source has.

    `source_id` tells the source from an earlier or later stream of its name. `asked` and `sub` are what the request
    said: the offset, None for the end of the source, and how much more of the message or batch that follows.
    """

    source: str
    source_id: str
    at: Offset
    asked: Offset | None
    sub: int


@dataclass(frozen=True, slots=True)
class StreamTerms:
    """The terms of a stream. `id` is its own among all that ever had its name.

    `is_filled` and `is_closed` say that it was created with content, and closed: whoever creates it again after the
    first attempt failed half-way completes it.
    """

    content_type: ContentType
    lifetime: Lifetime
    id: str
    origin: ForkOrigin | None = None
    is_filled: bool = False
    is_closed: bool = False

    def to_properties(self) -> dict[str, str]:
        """Return the terms as properties of a stream."""
        found = {_TYPE: self.content_type.text, _ID: self.id}
        if self.lifetime.ttl_s is not None:
            found[_TTL] = str(self.lifetime.ttl_s)
        if self.lifetime.expires_at is not None:
            found[_EXPIRES] = self.lifetime.expires_at
        if self.is_filled:
            found[_FILLED] = "1"
        if self.is_closed:
            found[_CLOSED] = "1"
        if self.origin is not None:
            found |= {_SOURCE: self.origin.source, _SOURCE_ID: self.origin.source_id, _AT: str(self.origin.at)}
            found |= {_SUB: str(self.origin.sub)}
            if self.origin.asked is not None:
                found[_ASKED] = str(self.origin.asked)
        return found

    @classmethod
    def of_properties(cls, properties: Mapping[str, str], *, otherwise: str) -> StreamTerms:
        """Read the terms; `otherwise` is the id of a stream that no server created."""
        ttl = properties.get(_TTL)
        return cls(
            ContentType(properties[_TYPE]) if _TYPE in properties else BYTES,
            Lifetime(None if ttl is None else int(ttl), properties.get(_EXPIRES)),
            properties.get(_ID, otherwise),
            _origin(properties),
            _FILLED in properties,
            _CLOSED in properties,
        )


def new_id() -> str:
    """Return an id for a stream that is about to be created."""
    return uuid4().hex


def source_id_of(properties: Mapping[str, str]) -> str | None:
    """Return the id of the stream that the one with these properties is a fork of; None if it is no fork."""
    return properties.get(_SOURCE_ID)


def _origin(properties: Mapping[str, str]) -> ForkOrigin | None:
    if _SOURCE_ID not in properties:
        return None
    asked = properties.get(_ASKED)
    return ForkOrigin(
        properties[_SOURCE],
        properties[_SOURCE_ID],
        Offset(int(properties[_AT])),
        None if asked is None else Offset(int(asked)),
        int(properties[_SUB]),
    )
