"""What a client asks that has one answer: metadata, offsets, figures, partitions, and changes of streams."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from coldstream.errors import (
    ColdstreamError,
    InvalidInputError,
    NotFoundError,
    StreamClosedError,
    StreamExistsError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.gateway.alone.client_side import FrameBody
from coldstream.gateway.alone.parts import AloneParts
from coldstream.gateway.alone.peer import AlonePeer
from coldstream.gateway.alone.served_stream import ServedStream
from coldstream.gateway.frames.answers import (
    ExchangeCommandVersionsAnswer,
    MetadataAnswer,
    OffsetAnswer,
    PartitionsAnswer,
    ResolveOffsetSpecAnswer,
    RouteAnswer,
    SequenceAnswer,
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
    QueryOffset,
    ResolveOffsetSpec,
    Route,
    StoreOffset,
    StreamStats,
)
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.units import Offset
from coldstream.web.access_tokens import Right

_LOG = logging.getLogger(__name__)
_NO_LEADER = 0xFFFF
_LOOKS = 16
_MAX_REFERENCE_BYTES = 255


class AloneRefusalError(ColdstreamError):
    """A request is refused with `code`; `why` is for the log."""

    def __init__(self, code: Code, why: str) -> None:
        self.code = code
        super().__init__(why)


def code_of(err: ColdstreamError) -> Code:
    """Return the code by which a client is told of an error."""
    match err:
        case AloneRefusalError():
            return err.code
        case StreamExistsError():
            return Code.STREAM_EXISTS
        case NotFoundError():
            return Code.STREAM_DOES_NOT_EXIST
        case InvalidInputError():
            return Code.PRECONDITION_FAILED
        case UnavailableError() | StreamClosedError():
            return Code.STREAM_NOT_AVAILABLE
    return Code.INTERNAL_ERROR


_EMPTY: Final[Mapping[int, Callable[[int, Code], bytes]]] = {
    Key.QUERY_OFFSET: lambda asked, code: OffsetAnswer(asked, code, 0).to_bytes(),
    Key.QUERY_PUBLISHER_SEQUENCE: lambda asked, code: SequenceAnswer(asked, code, 0).to_bytes(),
    Key.ROUTE: lambda asked, code: RouteAnswer(asked, code, ()).to_bytes(),
    Key.PARTITIONS: lambda asked, code: PartitionsAnswer(asked, code, ()).to_bytes(),
    Key.STREAM_STATS: lambda asked, code: StreamStatsAnswer(asked, code, ()).to_bytes(),
    Key.RESOLVE_OFFSET_SPEC: lambda asked, code: ResolveOffsetSpecAnswer(asked, code, AtOffset(Offset(0))).to_bytes(),
}
"""Answers that have their fields also if they refuse, as a broker's have: empty, and 0."""


def refusal_of(key: int, correlation_id: int, code: Code) -> bytes:
    """Return the answer that refuses a request."""
    make = _EMPTY.get(key)
    return plain_answer(Key(key), correlation_id, code) if make is None else make(correlation_id, code)


class AloneQuestions:
    """Answers for one client. Each method takes a frame, and raises what `code_of` knows."""

    def __init__(self, parts: AloneParts, peer: AlonePeer) -> None:
        self._parts = parts
        self._peer = peer
        self.known: set[str] = set()
        """Streams that the client may read and that were there."""

    @property
    def by_key(self) -> dict[int, Callable[[FrameBody], Awaitable[None]]]:
        """Return what answers which key."""
        return {
            Key.METADATA: self.metadata,
            Key.QUERY_OFFSET: self.query_offset,
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
        found = await self._parts.find(self._peer.vhost, name)
        if found is None:
            raise StreamNotFoundError(f"there is no stream {name!r} in vhost {self._peer.vhost!r}")
        self.known.add(name)
        return found

    def check(self, right: Right, name: str) -> None:
        """Raise AloneRefusalError unless the client may do that.

        Call it before anything is looked up: so the client learns nothing of what it may not see.
        """
        if not name:
            raise AloneRefusalError(Code.STREAM_DOES_NOT_EXIST, "a stream without a name")
        if not self._peer.may(right, name):
            raise AloneRefusalError(Code.ACCESS_REFUSED, f"{self._peer.user!r} may not {right.name} {name!r}")

    async def writable(self, name: str) -> None:
        """Raise AloneRefusalError unless the client may write a stream, and it takes messages here."""
        self.check(Right.WRITE, name)
        if not (await self.existing(name)).is_direct:
            raise AloneRefusalError(Code.ACCESS_REFUSED, f"{name!r} is a broker's stream, and is read only here")

    def exchange(self, body: FrameBody) -> None:
        """Take and tell which versions are known. In the order of the keys, as clients look one up by its place."""
        asked = ExchangeCommandVersions.from_body(body)
        self._peer.versions = {key: greatest for key, _, greatest in asked.commands}
        commands = tuple((int(key), *VERSIONS[key]) for key in sorted(VERSIONS))
        self._peer.send(ExchangeCommandVersionsAnswer(asked.correlation_id, Code.OK, commands).to_bytes())

    async def metadata(self, body: FrameBody) -> None:
        """Tell that every stream is here. What the archive does not tell in time is not available now."""
        asked = Metadata.from_body(body)
        codes = dict.fromkeys((name or "" for name in asked.streams), Code.STREAM_NOT_AVAILABLE)
        names = iter(tuple(codes))

        async def look() -> None:
            for name in names:
                codes[name] = await self._code_of_stream(name)

        try:
            async with asyncio.timeout(self._peer.options.request_within_s / 2):
                await asyncio.gather(*(look() for _ in range(min(_LOOKS, len(codes)))))
        except TimeoutError:
            _LOG.warning("the archive did not answer in time", extra={"request": "METADATA", "streams": len(codes)})
        streams = [
            (name or "", int(codes[name or ""]), 0 if codes[name or ""] is Code.OK else _NO_LEADER, ())
            for name in asked.streams
        ]
        brokers = ((0, *self._peer.advertised),)
        self._peer.send(MetadataAnswer(asked.correlation_id, brokers, tuple(streams)).to_bytes())

    async def _code_of_stream(self, name: str) -> Code:
        if not name or not any(self._peer.may(right, name) for right in (Right.READ, Right.WRITE)):
            return Code.STREAM_DOES_NOT_EXIST  # the same as one that is not there
        try:
            found = await self._parts.find(self._peer.vhost, name)
        except InvalidInputError:
            return Code.STREAM_DOES_NOT_EXIST
        except ColdstreamError as err:
            _LOG.warning("the archive does not answer", extra={"stream": name, "error": str(err)})
            return Code.STREAM_NOT_AVAILABLE
        return Code.STREAM_DOES_NOT_EXIST if found is None else Code.OK

    async def query_offset(self, body: FrameBody) -> None:
        """Return a stored offset."""
        asked = QueryOffset.from_body(body)
        await self.readable(asked.stream)
        found = await self._parts.history.stored_offset(self._peer.vhost, asked.stream, asked.reference or "")
        code = Code.NO_OFFSET if found is None else Code.OK
        self._peer.send(OffsetAnswer(asked.correlation_id, code, found or 0).to_bytes())

    def store_offset(self, asked: StoreOffset) -> None:
        """Note an offset, of a stream that is known to be there."""
        size_bytes = len((asked.reference or "").encode())
        if not 1 <= size_bytes <= _MAX_REFERENCE_BYTES:
            _LOG.warning("an offset was not stored: a reference of %s bytes", size_bytes)
            return
        self._parts.history.note_offset(self._peer.vhost, asked.stream, asked.reference, Offset(asked.offset))

    async def store_offset_of_unknown(self, asked: StoreOffset) -> None:
        """Note an offset, once the stream is found. Nobody is answered."""
        await self.readable(asked.stream)
        self.store_offset(asked)

    async def stream_stats(self, body: FrameBody) -> None:
        """Return the figures of a stream."""
        asked = StreamStats.from_body(body)
        found = await (await self.readable(asked.stream)).figures()
        last = found.last_chunk_id
        numbers = (-1, -1, -1, -1) if found.is_empty else (found.first_offset, last, last, found.tail - 1)
        names = ("first_chunk_id", "last_chunk_id", "committed_chunk_id", "committed_offset")
        figures = tuple(zip(names, map(int, numbers), strict=True))
        self._peer.send(StreamStatsAnswer(asked.correlation_id, Code.OK, figures).to_bytes())

    async def resolve(self, body: FrameBody) -> None:
        """Return where a spec attaches."""
        asked = ResolveOffsetSpec.from_body(body)
        at = await (await self.readable(asked.stream)).attach(asked.spec or FIRST)
        self._peer.send(ResolveOffsetSpecAnswer(asked.correlation_id, Code.OK, AtOffset(at)).to_bytes())

    async def partitions(self, body: FrameBody) -> None:
        """Return the partitions of a super stream."""
        asked = Partitions.from_body(body)
        found = await self._parts.super_streams.partitions(self._peer.vhost, asked.super_stream or "")
        if found is None:
            raise StreamNotFoundError(f"no super stream {asked.super_stream!r} is known")
        streams = tuple(one.stream for one in found)
        self._peer.send(PartitionsAnswer(asked.correlation_id, Code.OK, streams).to_bytes())

    async def route(self, body: FrameBody) -> None:
        """Return the partitions that a binding key leads to."""
        asked = Route.from_body(body)
        found = await self._parts.super_streams.partitions(self._peer.vhost, asked.super_stream or "")
        if found is None:
            raise StreamNotFoundError(f"no super stream {asked.super_stream!r} is known")
        streams = tuple(one.stream for one in found if one.binding_key == asked.routing_key)
        self._peer.send(RouteAnswer(asked.correlation_id, Code.OK, streams).to_bytes())

    async def create(self, body: FrameBody) -> None:
        """Create a direct stream, if that is allowed. Arguments are a broker's, and mean nothing here."""
        asked = Create.from_body(body)
        self.check(Right.WRITE, asked.stream)
        if await self._parts.find(self._peer.vhost, asked.stream) is not None:
            raise AloneRefusalError(Code.STREAM_EXISTS, f"{asked.stream!r} is there already")
        if not self._parts.options.creates_streams:
            raise AloneRefusalError(Code.ACCESS_REFUSED, f"{asked.stream!r}: streams are not created here")
        await self._parts.host.create(self._peer.vhost, asked.stream)
        await self._parts.history.bounds(self._peer.vhost, asked.stream, fresh=True)
        self._peer.send(plain_answer(Key.CREATE, asked.correlation_id, Code.OK))

    async def delete(self, body: FrameBody) -> None:
        """Delete a direct stream, if streams are created here, too."""
        asked = Delete.from_body(body)
        await self.writable(asked.stream)
        if not self._parts.options.creates_streams:
            raise AloneRefusalError(Code.ACCESS_REFUSED, f"{asked.stream!r}: streams are not deleted here")
        await self._parts.host.delete(self._peer.vhost, asked.stream)
        self.known.discard(asked.stream)
        await self._parts.history.bounds(self._peer.vhost, asked.stream, fresh=True)
        self._peer.send(plain_answer(Key.DELETE, asked.correlation_id, Code.OK))

    async def create_super_stream(self, body: FrameBody) -> None:
        """Refuse: `coldstream shards` makes super streams."""
        asked = CreateSuperStream.from_body(body)
        raise AloneRefusalError(Code.ACCESS_REFUSED, f"{asked.name!r}: super streams are not created here")

    async def delete_super_stream(self, body: FrameBody) -> None:
        """Refuse."""
        asked = DeleteSuperStream.from_body(body)
        raise AloneRefusalError(Code.ACCESS_REFUSED, f"{asked.name!r}: super streams are not deleted here")
