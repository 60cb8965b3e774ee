"""The bodies of answers with messages: a page of a stream, and slices of a search."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import Field

from coldstream.api.job_bodies import Dollars, StrictBody
from coldstream.browse.body_view import BodyKind, BodyView
from coldstream.browse.cost import ReadCost
from coldstream.browse.message_listing import MessageListing
from coldstream.browse.message_view import MessageView, SectionView
from coldstream.browse.search_slice import SearchEnd, SearchForecast, SearchSlice
from coldstream.resolve.api import Count, GapBody, OffsetNumber, TimestampNumber
from coldstream.units import MIB, Offset

MAX_ANSWER_BYTES = 4 * MIB
"""Messages of one answer, as JSON: a function's response has 6 MB at most."""


class ValueBody(StrictBody):
    """One value of a section."""

    name: str
    type: str = Field(description="AMQP's")
    text: str = Field(description="The value as text; its beginning if `is_cut`")
    characters: Count = Field(description="Of all of it")
    is_cut: bool


class SectionBody(StrictBody):
    """One section of a message."""

    name: str = Field(description="AMQP's")
    values: list[ValueBody]
    count: Count = Field(description="Values that it has; some may be left out")
    problem: str | None = Field(description="Why the rest could not be read")

    @classmethod
    def of(cls, section: SectionView) -> Self:
        """Encode the value."""
        values = [
            ValueBody(
                name=_shown(row.name),
                type=row.type,
                text=_shown(row.text),
                characters=row.characters,
                is_cut=row.is_cut,
            )
            for row in section.rows
        ]
        problem = None if section.problem is None else _shown(section.problem)
        return cls(name=section.name, values=values, count=section.count, problem=problem)


class MessageBytesBody(StrictBody):
    """The body of a message, or its beginning: as text if it is UTF-8, else in base64."""

    kind: BodyKind
    type: str = Field(description="AMQP's name of a value's type")
    size_bytes: Count = Field(description="Of all of it")
    is_cut: bool
    is_rendered: bool = Field(description="It is a value of AMQP, shown as JSON")
    text: str | None
    base64: str | None = Field(description="Null if there is `text`")

    @classmethod
    def of(cls, body: BodyView) -> Self:
        """Encode the value."""
        text = body.text
        return cls(
            kind=body.kind,
            type=body.type,
            size_bytes=body.size_bytes,
            is_cut=body.is_cut,
            is_rendered=body.is_rendered,
            text=text,
            base64=b64encode(body.data).decode() if text is None else None,
        )


class ShownMessageBody(StrictBody):
    """A message: where it is, its sections, and its body."""

    offset: OffsetNumber
    chunk_id: OffsetNumber
    timestamp: TimestampNumber = Field(description="Of its chunk")
    entry: Count = Field(description="Which entry of its chunk holds it")
    sub_batch_index: Count | None = Field(description="Its place in a sub-batch; null if it is in none")
    compression: str | None = Field(description="Of its sub-batch")
    raw_bytes: Count = Field(description="Size of the whole message")
    sections: list[SectionBody]
    body: MessageBytesBody | None
    is_erased: bool
    problem: str | None = Field(description="What is wrong with it")

    @classmethod
    def of(cls, message: MessageView) -> Self:
        """Encode the value."""
        entry = message.entry
        return cls(
            offset=message.offset,
            chunk_id=message.chunk_id,
            timestamp=message.timestamp,
            entry=entry.number,
            sub_batch_index=entry.index if entry.is_sub_batch else None,
            compression=entry.compression,
            raw_bytes=message.raw_bytes,
            sections=[SectionBody.of(section) for section in message.sections],
            body=None if message.body is None else MessageBytesBody.of(message.body),
            is_erased=message.is_erased,
            problem=None if message.problem is None else _shown(message.problem),
        )


class ReadCostBody(StrictBody):
    """What was asked of AWS for an answer, and about what that costs."""

    queries: Count
    gets: Count
    read_bytes: Count
    cost_usd: Dollars

    @classmethod
    def of(cls, cost: ReadCost) -> Self:
        """Encode the value."""
        return cls(queries=cost.queries, gets=cost.gets, read_bytes=cost.read_bytes, cost_usd=cost.usd)


class MessagesBody(StrictBody):
    """Consecutive messages."""

    vhost: str
    name: str
    incarnation: str
    messages: list[ShownMessageBody]
    next: OffsetNumber | None = Field(description="Ask for the next page `at` this")
    previous: OffsetNumber | None = Field(description="Ask for the page before `at` `before:` and this")
    gap: GapBody | None = Field(description="The place that was asked for is not archived")
    tail: OffsetNumber | None = Field(description="The archive ends with this page; the broker has what follows")
    floor: OffsetNumber | None = Field(description="The place that was asked for was removed; offsets go on here")
    cost: ReadCostBody

    @classmethod
    def of(cls, listing: MessageListing) -> Self:
        """Encode the value. What is too much for one answer is left to the next page."""
        messages = bounded(listing.messages)
        is_cut = len(messages) < len(listing.messages)
        following = Offset(messages[-1].offset + 1) if is_cut else listing.next
        stream = listing.stream
        return cls(
            vhost=stream.vhost,
            name=stream.name,
            incarnation=stream.incarnation,
            messages=messages,
            next=following,
            previous=listing.previous,
            gap=None if listing.gap is None else GapBody.of(listing.gap),
            tail=None if is_cut else listing.tail,
            floor=listing.floor,
            cost=ReadCostBody.of(listing.cost),
        )


class SearchProgressBody(StrictBody):
    """How far a search is, all slices together."""

    first_offset: OffsetNumber
    next_offset: OffsetNumber = Field(description="Everything below is done")
    end: OffsetNumber = Field(description="Where it ends")
    share: Annotated[float, Field(ge=0, le=1)] = Field(description="Of its offsets")
    chunk_bytes: Count
    messages: Count = Field(description="Messages looked at")
    matches: Count
    unreadable: Count = Field(description="Messages that could not be decoded")
    gap_offsets: Count = Field(description="Offsets that the archive lacks")
    cost: ReadCostBody


class SearchBody(StrictBody):
    """What one slice of a search found. Whoever cancels does not ask for the next one."""

    incarnation: str
    matches: list[ShownMessageBody]
    progress: SearchProgressBody
    ended_by: SearchEnd
    cursor: str | None = Field(description="Asks for the next slice, with the same parameters; null at the end")
    gap: GapBody | None = Field(description="What ended the slice; the next one goes on after it")

    @classmethod
    def of(cls, found: SearchSlice) -> Self:
        """Encode the value."""
        progress = found.progress
        told = {name: getattr(progress, name) for name in SearchProgressBody.model_fields if name != "cost"}
        return cls(
            incarnation=found.incarnation,
            matches=[ShownMessageBody.of(message) for message in found.matches],
            progress=SearchProgressBody(cost=ReadCostBody.of(progress.cost), **told),
            ended_by=found.ended_by,
            cursor=found.cursor,
            gap=None if found.gap is None else GapBody.of(found.gap),
        )


class SearchForecastBody(StrictBody):
    """About what a search will read, if nothing ends it before."""

    first_offset: OffsetNumber
    next_offset: OffsetNumber
    chunk_bytes: Count
    read_bytes: Count
    messages: Count
    cost: ReadCostBody
    is_bounded: bool = Field(description="`max_bytes` ends it before the end of its range")
    cold: str | None = Field(description="A storage class that must be restored first")

    @classmethod
    def of(cls, forecast: SearchForecast) -> Self:
        """Encode the value."""
        names = cls.model_fields.keys() - {"cost", "cold"}
        cold = None if forecast.cold is None else forecast.cold.value
        told = {name: getattr(forecast, name) for name in names}
        return cls(cost=ReadCostBody.of(forecast.cost), cold=cold, **told)


def bounded(messages: Iterable[MessageView], max_bytes: int = MAX_ANSWER_BYTES) -> list[ShownMessageBody]:
    """Encode messages up to a size of JSON; the first one in any case."""
    found: list[ShownMessageBody] = []
    size_bytes = 0
    for message in messages:
        body = ShownMessageBody.of(message)
        size_bytes += len(body.model_dump_json())
        if found and size_bytes > max_bytes:
            break
        found.append(body)
    return found


def _shown(text: str) -> str:
    """Return text that JSON can carry: AMQP's may hold halves of characters."""
    return text.encode(errors="backslashreplace").decode()
