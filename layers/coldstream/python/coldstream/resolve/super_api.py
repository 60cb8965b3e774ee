"""The body of /ranges for a sharded stream, as a model; docs/openapi.json is generated from here."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from coldstream.manifest.shard_position import ShardPosition
from coldstream.resolve.api import ApiBody, Count, GapBody, OffsetNumber, RangeBody, StreamBody, TailBody
from coldstream.resolve.bodies import gap_body, range_body, stream_body
from coldstream.resolve.shard_api import LineageBody
from coldstream.resolve.super_answer import PartitionAnswer, SuperAnswer, SuperOrder
from coldstream.units import Offset


class PartitionAnswerBody(ApiBody):
    """What there is of a partition now: its messages from `from_offset` up to `next_offset`, and no others."""

    number: Count = Field(description="Its place in the map, for good")
    name: str
    from_offset: OffsetNumber = Field(description="The first offset to take; the first range may begin before it")
    next_offset: OffsetNumber = Field(
        description="The offset after the last one to take; the last range may end after it, if the partition waits"
    )
    stream: StreamBody | None = Field(description="Null if the archive does not know the partition, or was not asked")
    ranges: list[RangeBody] = Field(description="In the order of their offsets")
    gap: GapBody | None = Field(description="Not archived; `next_offset` is after it, so the walk passes it")
    tail: TailBody | None = Field(description="What follows is only on the broker")
    floor: OffsetNumber | None = Field(
        description="Offsets below this were removed from the archive; null unless the query asks for one of them"
    )
    limit: OffsetNumber | None = Field(
        description="From this offset on the partition waits for another one, in the order of keys; null if it does not"
    )
    waits_for: LineageBody | None = Field(description="An edge that the partition waits for at `limit`")

    @classmethod
    def of(cls, one: PartitionAnswer) -> Self:
        """Encode the value."""
        return cls.model_validate(
            {
                "number": one.number,
                "name": one.name,
                "from_offset": one.from_offset,
                "next_offset": one.next_offset,
                "stream": None if one.stream is None else stream_body(one.stream),
                "ranges": [range_body(part) for part in one.ranges],
                "gap": None if one.gap is None else gap_body(one.gap),
                "tail": None if one.tail is None else {"next_offset": one.tail},
                "floor": one.floor,
                "limit": one.limit,
                "waits_for": None if one.waits_for is None else LineageBody.of(one.waits_for),
            }
        )

    def value(self) -> PartitionAnswer:
        """Decode the body."""
        return PartitionAnswer(
            number=self.number,
            name=self.name,
            from_offset=Offset(self.from_offset),
            next_offset=Offset(self.next_offset),
            stream=None if self.stream is None else self.stream.value(),
            ranges=tuple(part.value() for part in self.ranges),
            gap=None if self.gap is None else self.gap.value(),
            tail=None if self.tail is None else Offset(self.tail.next_offset),
            floor=None if self.floor is None else Offset(self.floor),
            limit=None if self.limit is None else Offset(self.limit),
            waits_for=None if self.waits_for is None else self.waits_for.value(),
        )


class SuperAnswerBody(ApiBody):
    """Some partitions of a sharded stream. Follow `cursor` until it is null, and keep `position`."""

    vhost: str = Field(description="Virtual host")
    name: str = Field(description="The logical name")
    revision: int = Field(description="Of the map that the answer is made by")
    order: SuperOrder = Field(description="`key`: partitions wait where lineage says so; `arrival`: none waits")
    partitions: list[PartitionAnswerBody] = Field(description="Those whose turn it is, at most 32 of them with ranges")
    position: str | None = Field(
        description="The position after all that was answered; null while the start was not found in every partition",
        examples=["v2,0:1042,1:977"],
    )
    cursor: str | None = Field(
        description="Asks for more; null once every partition is at its tail, or waits for what is not archived"
    )

    @classmethod
    def of(cls, answer: SuperAnswer) -> Self:
        """Encode the value."""
        return cls(
            vhost=answer.vhost,
            name=answer.name,
            revision=answer.revision,
            order=answer.order,
            partitions=[PartitionAnswerBody.of(one) for one in answer.partitions],
            position=None if answer.position is None else str(answer.position),
            cursor=answer.cursor,
        )

    def value(self) -> SuperAnswer:
        """Decode the body. Raises ValueError or InvalidQueryError if it contradicts itself."""
        return SuperAnswer(
            self.vhost,
            self.name,
            self.revision,
            self.order,
            tuple(one.value() for one in self.partitions),
            None if self.position is None else ShardPosition.from_text(self.position),
            self.cursor,
        )
