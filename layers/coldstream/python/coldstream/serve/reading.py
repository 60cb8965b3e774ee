"""Pages of a stream: whole messages from an offset on, those of a fork's source before its own."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass

from coldstream.errors import CorruptionError, ExpiredEpochError, GapError, InvalidInputError, StreamClosedError
from coldstream.serve.hosted_stream import HostedStream
from coldstream.serve.message_body import body_of
from coldstream.serve.protocol.json_messages import check_message
from coldstream.serve.protocol.offset_token import EndOfStream, to_token
from coldstream.serve.refusal import ELSEWHERE, GONE, NO_STREAM
from coldstream.serve.stream_host import StreamHost
from coldstream.units import Offset
from coldstream.web.refusal import INVALID, Refusal


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Messages from `start` up to, not including, `next_offset`, which is the end of the stream if `is_up_to_date`.

    `is_closed` says that nothing will ever follow.
    """

    start: Offset
    next_offset: Offset
    messages: tuple[bytes, ...]
    is_up_to_date: bool
    is_closed: bool


@dataclass(frozen=True, slots=True)
class _Part:
    """A stream that has a part of what is read, up to `end`."""

    stream: HostedStream
    end: Offset


async def find_start(host: StreamHost, stream: HostedStream, place: Offset | EndOfStream) -> Offset:
    """Return the offset that a request begins at. Raises Refusal for one that the stream does not have."""
    if place is EndOfStream.FIRST:
        return await first_offset(host, stream)
    if place is EndOfStream.NOW:
        return stream.tail
    assert not isinstance(place, EndOfStream)
    if place > stream.tail:
        # Another server may have appended it: then that one has the stream.
        await host.check_owner(stream, within_s=0)
        if place > stream.tail:
            raise Refusal(INVALID, f"offset {to_token(place)} is after the end of the stream")
    return place


async def first_offset(host: StreamHost, stream: HostedStream) -> Offset:
    """Return the first offset that can be read, of the source if the stream is a fork."""
    origin = stream.terms.origin
    if origin is None or stream.start > origin.at:
        return stream.start
    async with host.use(origin.source, for_fork=True) as source:
        _check_is_source(source, origin.source_id)
        return min(await first_offset(host, source), origin.at)


async def read_page(host: StreamHost, stream: HostedStream, start: Offset, max_bytes: int) -> MessagePage:
    """Read from `start` on until a page is full or the stream ends; the last batch is read whole.

    Raises Refusal for what is not there any more.
    """
    # Before anything is read: what is said of the end must hold for what was read up to it.
    is_closed, tail = stream.is_closed, stream.tail
    messages: list[bytes] = []
    at, left = start, max_bytes
    async with AsyncExitStack() as sources:
        for part in await _parts(host, stream, start, tail, sources):
            if at < part.end and left > 0:
                at = await _read_part(host, part, at, left, messages)
                left = max_bytes - sum(map(len, messages))
    is_up_to_date = at >= tail
    return MessagePage(start, at, tuple(messages), is_up_to_date, is_closed and is_up_to_date)


async def wait_for_page(
    host: StreamHost, stream: HostedStream, start: Offset, max_bytes: int, until: float
) -> MessagePage:
    """Read as `read_page` does, and if there is nothing, wait for it until a time of the monotonic clock.

    A page without messages says that the time is over, or the stream closed, or the server about to end.
    """
    while True:
        news = stream.news
        page = await read_page(host, stream, start, max_bytes)
        if page.messages or page.is_closed or not await wait_for_news(host, stream, news, until):
            return page
        start = page.next_offset


async def wait_for_news(host: StreamHost, stream: HostedStream, news: asyncio.Event, until: float) -> bool:
    """Wait until something may have changed; False once that is not worth it. Raises Refusal if the stream is gone."""
    left_s = until - time.monotonic()
    if left_s <= 0 or host.is_stopping:
        return False
    every_s = host.options.refresh_s if stream.is_snapshot else host.options.check_owner_s
    try:
        async with asyncio.timeout(min(left_s, every_s)):
            await news.wait()
    except TimeoutError:
        await host.touch(stream)
        await host.check_owner(stream)
    if stream.is_deleted:
        raise Refusal(NO_STREAM, f"{stream.name!r} was deleted")
    if stream.is_lost:
        raise Refusal(ELSEWHERE, f"{stream.name!r} is served elsewhere now")
    return not host.is_stopping


async def _parts(
    host: StreamHost, stream: HostedStream, start: Offset, tail: Offset, sources: AsyncExitStack
) -> list[_Part]:
    """Return the streams that have what there is from `start` on, in the order of offsets, each with where it ends.

    That is the stream, and before it, if `start` is below where it was forked, its source, and that one's.
    """
    parts = [_Part(stream, tail)]
    end, origin = tail, stream.terms.origin
    while origin is not None and start < origin.at:
        end = min(end, origin.at)
        source = await sources.enter_async_context(host.use(origin.source, for_fork=True))
        _check_is_source(source, origin.source_id)
        parts.insert(0, _Part(source, end))
        origin = source.terms.origin
    return parts


async def _read_part(host: StreamHost, part: _Part, start: Offset, max_bytes: int, messages: list[bytes]) -> Offset:
    """Read one stream from `start` on; return the offset after what was read."""
    stream, end = part.stream, part.end
    left, at = max_bytes, start
    while at < end and left > 0:
        try:
            batches = await stream.handle.fetch(at, end, left)
        except (ExpiredEpochError, StreamClosedError) as err:
            host.lose(stream, err)
            raise Refusal(ELSEWHERE, f"{stream.name!r} is served elsewhere now") from err
        except GapError as err:
            if messages:
                return at  # whoever reads on from here is told
            raise _gap(err) from err
        if not batches:
            return end  # nothing but what readers skip
        for batch in batches:
            for message in batch.messages(at):
                if message.offset >= end:
                    break
                body = body_of(message)
                if stream.is_archived and stream.terms.content_type.is_json:
                    _check_json(stream, message.offset, body)
                messages.append(body)
                left -= len(body)
        at = min(batches[-1].next_offset, end)
    return at


def _gap(err: GapError) -> Refusal:
    """Say that offsets are missing, and where the stream goes on: whoever wants to leave them out reads from there."""
    return Refusal(GONE, str(err), {"Stream-Next-Offset": to_token(Offset(err.next_offset))})


def _check_json(stream: HostedStream, offset: Offset, body: bytes) -> None:
    try:
        check_message(body)
    except InvalidInputError as err:
        raise CorruptionError(f"{stream.name} offset {offset}", 0, "a message is not JSON") from err


def _check_is_source(source: HostedStream, source_id: str) -> None:
    if source.terms.id != source_id:
        raise Refusal(GONE, "what the fork was made of is gone")
