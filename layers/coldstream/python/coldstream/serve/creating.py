"""Creation: of a stream, of a fork, and again of one that is there already."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable
from dataclasses import dataclass

from coldstream.errors import StreamExistsError, UnexpectedTailError
from coldstream.serve.appending import messages_of
from coldstream.serve.hosted_stream import HostedStream
from coldstream.serve.protocol.content_type import BYTES, ContentType
from coldstream.serve.protocol.lifetime import Lifetime
from coldstream.serve.reading import first_offset, read_page
from coldstream.serve.refusal import CONFLICT, GONE, NO_STREAM
from coldstream.serve.stream_host import StreamHost
from coldstream.serve.stream_terms import ForkOrigin, StreamTerms, new_id
from coldstream.units import Offset
from coldstream.web.refusal import INVALID, Refusal

_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """What is to be forked: the source; where, None for its end; and how much of what follows, in bytes or values."""

    source: str
    at: Offset | None
    sub: int


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """What a PUT asks for. Without a content type, a fork has its source's, and others are of bytes."""

    content_type: ContentType | None
    lifetime: Lifetime
    body: bytes
    closes: bool
    fork: ForkRequest | None


@dataclass(frozen=True, slots=True)
class _NewStream:
    """A stream that may be created: its terms, its first offset, and what it begins with."""

    terms: StreamTerms
    first: Offset
    messages: list[bytes]


async def create(host: StreamHost, name: str, request: CreateRequest) -> tuple[HostedStream, bool]:
    """Create a stream, unless there is one just like it; return it, and whether it is new. The caller releases it.

    Cost: of a new one, about ten requests. Raises Refusal, InvalidInputError.
    """
    for _ in range(_ATTEMPTS):
        stream = await _find(host, name)
        if stream is not None:
            return await _existing(host, stream, request), False
        plan = await _plan(host, request)
        try:
            await _create(host, name, plan)
        except StreamExistsError:
            continue  # another request was faster, or a broker's stream has the name
        stream = await host.acquire(name, to_write=True)
        await _held(host, stream, _complete(stream, plan.messages))
        return stream, True
    raise Refusal(CONFLICT, f"{name!r} is the name of another stream")


async def _find(host: StreamHost, name: str) -> HostedStream | None:
    try:
        return await host.acquire(name)
    except Refusal as refusal:
        if refusal.kind is NO_STREAM:
            return None
        if refusal.kind is GONE:
            raise Refusal(CONFLICT, str(refusal)) from refusal
        raise


async def _existing(host: StreamHost, stream: HostedStream, request: CreateRequest) -> HostedStream:
    """Return a stream that is there if the request would create the same. Raises Refusal."""
    await _held(host, stream, _check_same(host, stream, request))
    return stream


async def _check_same(host: StreamHost, stream: HostedStream, request: CreateRequest) -> None:
    await host.check_owner(stream, within_s=0)
    terms, fork = stream.terms, request.fork
    if stream.is_archived:
        raise Refusal(CONFLICT, f"{stream.name!r} is a broker's stream")
    origin = terms.origin
    asked = None if origin is None else ForkRequest(origin.source, origin.asked, origin.sub)
    content_type = request.content_type or (BYTES if fork is None else terms.content_type)
    lifetime = terms.lifetime if fork is not None and not request.lifetime.is_bounded else request.lifetime
    differs = {
        "Content-Type": content_type.media_type != terms.content_type.media_type,
        "Stream-TTL": lifetime.ttl_s != terms.lifetime.ttl_s,
        "Stream-Expires-At": lifetime.expires_at != terms.lifetime.expires_at,
        "Stream-Closed": request.closes != (stream.is_closed or terms.is_closed),
        "Stream-Forked-From": asked != fork,
    }
    if any(differs.values()):
        what = ", ".join(name for name, is_other in differs.items() if is_other)
        raise Refusal(CONFLICT, f"there is a stream {stream.name!r} with another {what}")
    # Whoever created it may have failed half-way.
    is_empty = stream.tail == _own_first(terms)
    if (terms.is_filled and is_empty) or (terms.is_closed and not stream.is_closed):
        prefix: list[bytes] = []
        if is_empty and origin is not None:
            async with host.use(origin.source, for_fork=True) as source:
                prefix, _ = await _part_of_next(host, source, origin.asked or origin.at, origin.sub)
        async with host.use(stream.name, to_write=True) as writable:
            await _complete(writable, [*prefix, *_initial(request.body, terms.content_type)])


async def _held(host: StreamHost, stream: HostedStream, work: Awaitable[None]) -> None:
    """Do something with a stream that is in use; if that fails, it is not any more."""
    try:
        await work
    except BaseException:
        host.release(stream)
        raise


async def _plan(host: StreamHost, request: CreateRequest) -> _NewStream:
    if request.fork is not None:
        return await _plan_fork(host, request, request.fork)
    content_type = request.content_type or BYTES
    messages = _initial(request.body, content_type)
    terms = StreamTerms(content_type, request.lifetime, new_id(), is_filled=bool(messages), is_closed=request.closes)
    return _NewStream(terms, Offset(0), messages)


async def _plan_fork(host: StreamHost, request: CreateRequest, fork: ForkRequest) -> _NewStream:
    try:
        source = await host.acquire(fork.source)
    except Refusal as refusal:
        if refusal.kind is GONE:
            raise Refusal(CONFLICT, str(refusal)) from refusal
        raise
    try:
        if source.is_archived:
            raise Refusal(CONFLICT, f"{fork.source!r} is a broker's stream, which is not forked")
        await host.check_owner(source, within_s=0)
        content_type = request.content_type or source.terms.content_type
        if content_type.media_type != source.terms.content_type.media_type:
            raise Refusal(CONFLICT, f"{fork.source!r} is of {source.terms.content_type.text}")
        asked = source.tail if fork.at is None else fork.at
        if not await first_offset(host, source) <= asked <= source.tail:
            raise Refusal(INVALID, f"Stream-Fork-Offset: {fork.source!r} has no such offset")
        prefix, at = await _part_of_next(host, source, asked, fork.sub)
        messages = [*prefix, *_initial(request.body, content_type)]
        await source.side.mark_forked()
        terms = StreamTerms(
            content_type,
            request.lifetime if request.lifetime.is_bounded else source.terms.lifetime,
            new_id(),
            ForkOrigin(fork.source, source.terms.id, at, fork.at, fork.sub),
            is_filled=bool(messages),
            is_closed=request.closes,
        )
        return _NewStream(terms, at, messages)
    finally:
        host.release(source)


async def _part_of_next(host: StreamHost, source: HostedStream, at: Offset, sub: int) -> tuple[list[bytes], Offset]:
    """Return what a fork begins with, and where, that has `sub` bytes of the next message, or values of the next batch.

    Values are read from the source. A part of a message is a message of the fork's own.
    """
    if not sub:
        return [], at
    page = await read_page(host, source, at, 1)  # one batch
    if source.terms.content_type.is_json:
        if sub > len(page.messages):
            raise Refusal(INVALID, f"Stream-Fork-Sub-Offset: {len(page.messages)} values follow in the batch")
        return [], Offset(at + sub)
    if not page.messages or sub > len(page.messages[0]):
        raise Refusal(INVALID, "Stream-Fork-Sub-Offset: is more than what follows")
    return [page.messages[0][:sub]], at


async def _create(host: StreamHost, name: str, plan: _NewStream) -> None:
    vhost, terms = host.options.vhost, plan.terms
    await host.client.create(name, vhost=vhost, first=plan.first, properties=terms.to_properties())
    if terms.origin is None:
        return
    # The source may have been deleted meanwhile, by somebody who saw no fork yet.
    is_gone = False
    try:
        async with host.use(terms.origin.source, for_fork=True) as source:
            is_gone = source.terms.id != terms.origin.source_id or await source.side.is_deleted()
    except Refusal as refusal:
        if refusal.kind is not NO_STREAM:
            raise
        is_gone = True
    if is_gone:
        async with host.use(name, to_write=True) as stream:
            await host.delete(stream)
        raise Refusal(CONFLICT, f"{terms.origin.source!r} was deleted")


async def _complete(stream: HostedStream, messages: list[bytes]) -> None:
    """Append what the stream was created with, if it has nothing yet, and close it if it was created closed."""
    if stream.is_closed:
        return
    async with stream.lock:
        if messages:
            with contextlib.suppress(UnexpectedTailError):  # it has them
                await stream.handle.append(messages, expect=_own_first(stream.terms))
        if stream.terms.is_closed:
            await stream.handle.seal()
    stream.announce()


def _own_first(terms: StreamTerms) -> Offset:
    return Offset(0) if terms.origin is None else terms.origin.at


def _initial(body: bytes, content_type: ContentType) -> list[bytes]:
    return messages_of(body, content_type) if body else []
