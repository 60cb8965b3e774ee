"""What a client asks that has one answer: metadata, offsets, figures, partitions, and changes of streams."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from coldstream.errors import ColdstreamError, InvalidInputError, StreamNotFoundError
from coldstream.gateway.alone.client_side import FrameBody
from coldstream.gateway.alone.parts import AloneParts
from coldstream.gateway.alone.peer import AlonePeer
from coldstream.gateway.alone.refusals import AloneRefusalError
from coldstream.gateway.alone.served_stream import ServedStream
from coldstream.gateway.alone.super_streams import SuperPartition
from coldstream.gateway.frames.answers import (
    ExchangeCommandVersionsAnswer,
    MetadataAnswer,
    PartitionsAnswer,
    ResolveOffsetSpecAnswer,
    RouteAnswer,
    StreamStatsAnswer,
    plain_answer,
)
from coldstream.gateway.frames.keys import VERSIONS, Code, Key
from coldstream.gateway.frames.requests import (
    Create,
    CreateSuperStream,
    Delete,
    DeleteSuperStream,
    ExchangeCommandVersions,
    Metadata,
    Partitions,
    ResolveOffsetSpec,
    Route,
    StreamStats,
)
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.web.access_tokens import Right

_LOG = logging.getLogger(__name__)
_NO_LEADER = 0xFFFF
_LOOKS = 16


class AloneQuestions:
    """Answers for one client. Each method takes a frame, and raises what `code_of` knows."""

    def __init__(self, parts: AloneParts, peer: AlonePeer) -> None:
        self.peer = peer
        self._parts = parts
        self.known: set[str] = set()
        """Streams that were there."""

    @property
    def by_key(self) -> dict[int, Callable[[FrameBody], Awaitable[None]]]:
        """Return what answers which key."""
        return {
            Key.METADATA: self.metadata,
            Key.STREAM_STATS: self.stream_stats,
            Key.RESOLVE_OFFSET_SPEC: self.resolve,
            Key.PARTITIONS: self.partitions,
            Key.ROUTE: self.route,
            Key.CREATE: self.create,
            Key.DELETE: self.delete,
            Key.CREATE_SUPER_STREAM: self.create_super_stream,
            Key.DELETE_SUPER_STREAM: self.delete_super_stream,
        }

    async def readable(self, name: str) -> ServedStream:
        """Return a stream that the client may read. Raises AloneRefusalError, StreamNotFoundError."""
        self.check(Right.READ, name)
        return await self.existing(name)

    async def existing(self, name: str) -> ServedStream:
        """Return a stream. Raises StreamNotFoundError."""
        found = await self._parts.find(self.peer.vhost, name)
        if found is None:
            raise StreamNotFoundError(f"there is no stream {name!r} in vhost {self.peer.vhost!r}")
        self.known.add(name)
        return found

    def check(self, right: Right, name: str) -> None:
        """Raise AloneRefusalError unless the client may do that.

        Call it before anything is looked up: so the client learns nothing of what it may not see.
        """
        if not name:
            raise AloneRefusalError(Code.STREAM_DOES_NOT_EXIST, "a stream without a name")
        if not self.peer.may(right, name):
            raise AloneRefusalError(Code.ACCESS_REFUSED, f"{self.peer.user!r} may not {right.name} {name!r}")

    async def writable(self, name: str) -> None:
        """Raise AloneRefusalError unless the client may write a stream, and it takes messages here."""
        self.check(Right.WRITE, name)
        if not (await self.existing(name)).is_direct:
            raise AloneRefusalError(Code.ACCESS_REFUSED, f"{name!r} is a broker's stream, and is read only here")

    def exchange(self, body: FrameBody) -> None:
        """Take and tell which versions are known. In the order of the keys, as clients look one up by its place."""
        asked = ExchangeCommandVersions.from_body(body)
        self.peer.versions = {key: greatest for key, _, greatest in asked.commands}
        commands = tuple((int(key), *VERSIONS[key]) for key in sorted(VERSIONS))
        self.peer.send(ExchangeCommandVersionsAnswer(asked.correlation_id, Code.OK, commands).to_bytes())

    async def metadata(self, body: FrameBody) -> None:
        """Tell that every stream is here. What the archive does not tell in time is not available now."""
        asked = Metadata.from_body(body)
        codes = dict.fromkeys((name or "" for name in asked.streams), Code.STREAM_NOT_AVAILABLE)
        names = iter(tuple(codes))

        async def look() -> None:
            for name in names:
                codes[name] = await self._code_of_stream(name)

        try:
            async with asyncio.timeout(self.peer.options.request_within_s / 2):
                await asyncio.gather(*(look() for _ in range(min(_LOOKS, len(codes)))))
        except TimeoutError:
            _LOG.warning("the archive did not answer in time", extra={"request": "METADATA", "streams": len(codes)})
        streams = [
            (name or "", int(codes[name or ""]), 0 if codes[name or ""] is Code.OK else _NO_LEADER, ())
            for name in asked.streams
        ]
        brokers = ((0, *self.peer.advertised),)
        self.peer.send(MetadataAnswer(asked.correlation_id, brokers, tuple(streams)).to_bytes())

    async def _code_of_stream(self, name: str) -> Code:
        if not name or not self._may_see(name):
            return Code.STREAM_DOES_NOT_EXIST  # the same as one that is not there
        try:
            found = await self._parts.find(self.peer.vhost, name)
        except InvalidInputError:
            return Code.STREAM_DOES_NOT_EXIST
        except ColdstreamError as err:
            _LOG.warning("the archive does not answer", extra={"stream": name, "error": str(err)})
            return Code.STREAM_NOT_AVAILABLE
        return Code.STREAM_DOES_NOT_EXIST if found is None else Code.OK

    async def stream_stats(self, body: FrameBody) -> None:
        """Return the figures of a stream."""
        asked = StreamStats.from_body(body)
        found = await (await self.readable(asked.stream)).figures()
        last = found.last_chunk_id
        numbers = (-1, -1, -1, -1) if found.is_empty else (found.first_offset, last, last, found.tail - 1)
        names = ("first_chunk_id", "last_chunk_id", "committed_chunk_id", "committed_offset")
        figures = tuple(zip(names, map(int, numbers), strict=True))
        self.peer.send(StreamStatsAnswer(asked.correlation_id, Code.OK, figures).to_bytes())

    async def resolve(self, body: FrameBody) -> None:
        """Return where a spec attaches."""
        asked = ResolveOffsetSpec.from_body(body)
        at = await (await self.readable(asked.stream)).attach(asked.spec or FIRST)
        self.peer.send(ResolveOffsetSpecAnswer(asked.correlation_id, Code.OK, AtOffset(at)).to_bytes())

    async def partitions(self, body: FrameBody) -> None:
        """Return the partitions of a super stream."""
        asked = Partitions.from_body(body)
        found = await self._partitions_of(asked.super_stream or "")
        streams = tuple(one.stream for one in found)
        self.peer.send(PartitionsAnswer(asked.correlation_id, Code.OK, streams).to_bytes())

    async def route(self, body: FrameBody) -> None:
        """Return the partitions that a binding key leads to."""
        asked = Route.from_body(body)
        found = await self._partitions_of(asked.super_stream or "")
        streams = tuple(one.stream for one in found if one.binding_key == asked.routing_key)
        self.peer.send(RouteAnswer(asked.correlation_id, Code.OK, streams).to_bytes())

    async def _partitions_of(self, name: str) -> Sequence[SuperPartition]:
        """Return all partitions of a super stream, if the client has a right on any: a part would lead to others.

        Raises StreamNotFoundError.
        """
        found = await self._parts.super_streams.partitions(self.peer.vhost, name)
        if found is None or not any(self._may_see(one.stream) for one in found):
            raise StreamNotFoundError(f"no super stream {name!r} is known")
        return found

    def _may_see(self, name: str) -> bool:
        return any(self.peer.may(right, name) for right in (Right.READ, Right.WRITE))

    async def create(self, body: FrameBody) -> None:
        """Create a direct stream, if that is allowed. Arguments are a broker's, and mean nothing here."""
        asked = Create.from_body(body)
        self.check(Right.WRITE, asked.stream)
        if await self._parts.find(self.peer.vhost, asked.stream) is not None:
            raise AloneRefusalError(Code.STREAM_EXISTS, f"{asked.stream!r} is there already")
        if not self._parts.options.creates_streams:
            raise AloneRefusalError(Code.ACCESS_REFUSED, f"{asked.stream!r}: streams are not created here")
        await self._parts.host.create(self.peer.vhost, asked.stream)
        await self._parts.history.bounds(self.peer.vhost, asked.stream, fresh=True)
        self.peer.send(plain_answer(Key.CREATE, asked.correlation_id, Code.OK))

    async def delete(self, body: FrameBody) -> None:
        """Delete a direct stream, if streams are created here, too."""
        asked = Delete.from_body(body)
        await self.writable(asked.stream)
        if not self._parts.options.creates_streams:
            raise AloneRefusalError(Code.ACCESS_REFUSED, f"{asked.stream!r}: streams are not deleted here")
        await self._parts.host.delete(self.peer.vhost, asked.stream)
        self.known.discard(asked.stream)
        await self._parts.history.bounds(self.peer.vhost, asked.stream, fresh=True)
        self.peer.send(plain_answer(Key.DELETE, asked.correlation_id, Code.OK))

    async def create_super_stream(self, body: FrameBody) -> None:
        """Refuse: `coldstream shards` makes super streams."""
        asked = CreateSuperStream.from_body(body)
        raise AloneRefusalError(Code.ACCESS_REFUSED, f"{asked.name!r}: super streams are not created here")

    async def delete_super_stream(self, body: FrameBody) -> None:
        """Refuse."""
        asked = DeleteSuperStream.from_body(body)
        raise AloneRefusalError(Code.ACCESS_REFUSED, f"{asked.name!r}: super streams are not deleted here")
