"""A page of the messages of a stream, and where the pages around it are."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.browse.cost import ReadCost
from coldstream.browse.limits import IN_A_LIST, MAX_PAGE_MESSAGES, ViewLimits
from coldstream.browse.message_view import MessageView
from coldstream.browse.stream_views import FragmentRow
from coldstream.errors import InvalidQueryError
from coldstream.manifest.entry import Gap
from coldstream.manifest.spec import OffsetSpec
from coldstream.manifest.stream import StreamId
from coldstream.units import Offset

MAX_GETS = 16


@dataclass(frozen=True, slots=True)
class BeforeOffset:
    """The messages right before an offset: the page before the one that begins there."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class MessageQuery:
    """Up to `limit` messages from a place on; of `last`, the last ones; of BeforeOffset, those right before it.

    One GET reads them, of the bytes that the sparse index gives. So a page ends with its fragment, and may be shorter
    than `limit`, unless `max_gets` allows to read on in the next ones.
    """

    at: OffsetSpec | BeforeOffset
    limit: int = 50
    limits: ViewLimits = IN_A_LIST
    max_gets: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= MAX_PAGE_MESSAGES:
            raise InvalidQueryError("limit", f"{self.limit} is not from 1 to {MAX_PAGE_MESSAGES}")
        if not 1 <= self.max_gets <= MAX_GETS:
            raise InvalidQueryError("max_gets", f"{self.max_gets} is not from 1 to {MAX_GETS}")
        self.limits.check_many(self.limit)


@dataclass(frozen=True, slots=True)
class MessageListing:
    """Consecutive messages, in the order of their offsets.

    `next` is the offset of the page after this one, `previous` the one to ask for with BeforeOffset; None where nothing
    is there. `gap` is a hole at the place that was asked for, and then there are no messages; pages go on at both sides
    of it. `tail` is there if the page reaches the end of the archive: from there on the broker has the stream. `floor`
    is there if the place was below it, and everything there was removed on purpose. `fragment` holds the first message.
    """

    stream: StreamId
    messages: tuple[MessageView, ...]
    fragment: FragmentRow | None
    next: Offset | None
    previous: Offset | None
    gap: Gap | None
    tail: Offset | None
    floor: Offset | None
    cost: ReadCost
