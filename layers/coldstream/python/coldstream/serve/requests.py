"""Requests to a stream, from headers and query to a response."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from coldstream.errors import ColdstreamError, InvalidInputError, InvalidQueryError
from coldstream.serve.appending import NEXT_OFFSET, STREAM_CLOSED, AppendRequest, append, messages_of
from coldstream.serve.creating import CreateRequest, ForkRequest, create
from coldstream.serve.hosted_stream import HostedStream
from coldstream.serve.page_response import EventsResponse, PageResponse, pieces
from coldstream.serve.protocol import producer, server_events
from coldstream.serve.protocol.content_type import ContentType
from coldstream.serve.protocol.json_messages import join_messages
from coldstream.serve.protocol.lifetime import parse_lifetime
from coldstream.serve.protocol.live_cursor import next_cursor
from coldstream.serve.protocol.offset_token import EndOfStream, parse_place, parse_token, to_token
from coldstream.serve.protocol.stream_name import name_of_path
from coldstream.serve.reading import MessagePage, find_start, read_page, wait_for_news, wait_for_page
from coldstream.serve.refusal import CONFLICT, READ_ONLY
from coldstream.serve.stream_host import StreamHost
from coldstream.units import Offset, now_ms
from coldstream.web.access_tokens import Right, TokenHolder
from coldstream.web.refusal import FORBIDDEN, INVALID, TOO_LARGE, TOO_SLOW, Refusal
from coldstream.web.request_limits import RequestLimits

UP_TO_DATE, CURSOR = "Stream-Up-To-Date", "Stream-Cursor"
_LONG_POLL, _EVENTS = "long-poll", "sse"
_SUB_OFFSET = re.compile(r"0|[1-9][0-9]{0,15}", re.ASCII)
MAX_SEQ_BYTES = 1024


class StreamRequests:
    """Answers the requests to streams. `is_private` says that caches must not share what is read."""

    def __init__(self, host: StreamHost, limits: RequestLimits, *, is_private: bool) -> None:
        self._host = host
        self._limits = limits
        self._share = "private" if is_private else "public"

    async def answer(self, request: Request, name: str, caller: TokenHolder) -> Response:
        """Answer a request. Raises Refusal, and errors of coldstream."""
        match request.method:
            case "GET":
                return await self._read(request, name)
            case "HEAD":
                return await self._head(name)
            case "PUT" | "POST":
                with self._limits.body() as take:
                    body = await self._body(request, take)
                    # To its end, also if the client leaves: a close must not stop after the message that comes with it.
                    is_new = request.method == "PUT"
                    work = self._create(request, name, caller, body) if is_new else self._append(request, name, body)
                    return await asyncio.shield(asyncio.ensure_future(work))
            case _:
                return await asyncio.shield(asyncio.ensure_future(self._delete(name)))

    async def _create(self, request: Request, name: str, caller: TokenHolder, body: bytes) -> Response:
        headers = request.headers
        content_type = headers.get("content-type")
        fork = _fork_of(request)
        if fork is not None and not caller.may(Right.READ, fork.source):
            raise Refusal(FORBIDDEN, f"{caller.name} may not read {fork.source!r}")
        wanted = CreateRequest(
            ContentType.parse(content_type) if content_type else None,
            parse_lifetime(headers.get("stream-ttl"), headers.get("stream-expires-at")),
            body,
            _is_true(headers.get("stream-closed")),
            fork,
        )
        stream, is_new = await create(self._host, name, wanted)
        try:
            await self._host.touch(stream)
            found = {**_metadata(stream), NEXT_OFFSET: to_token(stream.tail)}
        finally:
            self._host.release(stream)
        if is_new:
            # As it was sent: a name in other characters than those of ASCII is no header's value.
            path = request.scope["raw_path"].decode("ascii")
            found["Location"] = f"{request.url.scheme}://{request.url.netloc}{path}"
        return Response(status_code=HTTPStatus.CREATED if is_new else HTTPStatus.OK, headers=found)

    async def _append(self, request: Request, name: str, body: bytes) -> Response:
        headers = request.headers
        sender = producer.parse_producer(headers)
        closes = _is_true(headers.get("stream-closed"))
        seq = headers.get("stream-seq")
        if seq is not None and not 0 < len(seq) <= MAX_SEQ_BYTES:
            raise Refusal(INVALID, f"Stream-Seq has 1 to {MAX_SEQ_BYTES} bytes")
        if not body and not closes:
            raise Refusal(INVALID, "an empty body appends nothing")
        content_type = headers.get("content-type")
        if body and not content_type:
            raise Refusal(INVALID, "Content-Type is missing")
        async with self._host.use(name, to_write=True) as stream:
            messages: list[bytes] = []
            if body and content_type and not stream.is_archived:
                if ContentType.parse(content_type).media_type != stream.terms.content_type.media_type:
                    raise Refusal(CONFLICT, f"{name!r} is of {stream.terms.content_type.text}")
                messages = messages_of(body, stream.terms.content_type)
                if not messages:
                    raise Refusal(INVALID, "an empty array appends nothing")
            wanted = AppendRequest(messages, sender, None if seq is None else seq.encode("latin-1"), closes)
            answer = await append(self._host, stream, wanted)
            await self._host.touch(stream)
        found = {NEXT_OFFSET: to_token(answer.next_offset)}
        if answer.is_closed:
            found[STREAM_CLOSED] = "true"
        if answer.producer is not None:
            found |= {producer.EPOCH: str(answer.producer.epoch), producer.SEQ: str(answer.producer.seq)}
        is_new = sender is not None and answer.is_new
        return Response(status_code=HTTPStatus.OK if is_new else HTTPStatus.NO_CONTENT, headers=found)

    async def _delete(self, name: str) -> Response:
        async with self._host.use(name, to_write=True) as stream:
            if stream.is_archived:
                raise Refusal(READ_ONLY, f"{name!r} is a broker's stream", {"Allow": "GET, HEAD, OPTIONS"})
            await self._host.delete(stream)
        return Response(status_code=HTTPStatus.NO_CONTENT)

    async def _head(self, name: str) -> Response:
        async with self._host.use(name) as stream:
            await self._host.check_owner(stream)
            found = {**_metadata(stream), NEXT_OFFSET: to_token(stream.tail), "Cache-Control": "no-store"}
        return Response(headers=found)

    async def _read(self, request: Request, name: str) -> Response:
        place, live, cursor = _query_of(request)
        if live == _EVENTS:
            return await self._events(name, place, cursor)
        async with self._host.use(name) as stream:
            await self._host.touch(stream)
            await self._host.check_owner(stream)
            start = await find_start(self._host, stream, place)
            if live == _LONG_POLL:
                return await self._long_poll(stream, start, cursor, is_now=place is EndOfStream.NOW)
            if place is EndOfStream.NOW:
                page = MessagePage(start, start, (), is_up_to_date=True, is_closed=stream.is_closed)
                return Response(
                    _joined(page, stream), headers={**_page_headers(page, stream), "Cache-Control": "no-store"}
                )
            page = await read_page(self._host, stream, start, self._host.options.page_bytes)
            return self._page_response(request, page, stream)

    def _page_response(self, request: Request, page: MessagePage, stream: HostedStream) -> Response:
        etag = f'"{stream.terms.id}:{page.start}:{page.next_offset}{":closed" if page.is_closed else ""}"'
        headers = {**_page_headers(page, stream), "ETag": etag, "Cache-Control": self._cache_control(page)}
        if etag in [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return PageResponse(_joined(page, stream), headers, self._limits)

    def _cache_control(self, page: MessagePage) -> str:
        """A page that ends before the stream does never changes; one at its end is asked for anew each time."""
        if page.is_up_to_date and not page.is_closed:
            return f"{self._share}, no-cache"
        return f"{self._share}, max-age=60, stale-while-revalidate=300"

    async def _long_poll(self, stream: HostedStream, start: Offset, cursor: str | None, *, is_now: bool) -> Response:
        options = self._host.options
        sent_cursor = next_cursor(now_ms(), cursor)
        with self._limits.live_read():
            page = await wait_for_page(
                self._host, stream, start, options.page_bytes, time.monotonic() + options.long_poll_s
            )
        # What came after "now" has been there for long when the next client asks.
        caching = "no-store" if is_now else self._cache_control(page)
        headers = {**_page_headers(page, stream), CURSOR: sent_cursor, "Cache-Control": caching}
        if not page.messages:
            del headers["Content-Type"]
            return Response(status_code=HTTPStatus.NO_CONTENT, headers=headers)
        etag = f'"{stream.terms.id}:{page.start}:{page.next_offset}{":closed" if page.is_closed else ""}"'
        return PageResponse(_joined(page, stream), {**headers, "ETag": etag}, self._limits)

    async def _events(self, name: str, place: Offset | EndOfStream, cursor: str | None) -> Response:
        held = AsyncExitStack()
        try:
            held.enter_context(self._limits.live_read())
            stream = await held.enter_async_context(self._host.use(name))
            await self._host.touch(stream)
            await self._host.check_owner(stream)
            start = await find_start(self._host, stream, place)
            next_cursor(now_ms(), cursor)
        except BaseException:
            await held.aclose()
            raise
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        if not stream.terms.content_type.is_text:
            headers["Stream-SSE-Data-Encoding"] = "base64"
        headers["Content-Type"] = server_events.MEDIA_TYPE
        return EventsResponse(self._event_stream(stream, start, cursor), held, headers)

    async def _event_stream(self, stream: HostedStream, start: Offset, cursor: str | None) -> AsyncGenerator[bytes]:
        """Yield events until the stream is closed, or the connection is old enough for its client to come anew."""
        options = self._host.options
        until = time.monotonic() + options.events_s
        is_first = True
        while True:
            news = stream.news
            try:
                page = await read_page(self._host, stream, start, options.page_bytes)
                if page.messages or is_first or page.is_closed:
                    event = _events_of(page, stream, next_cursor(now_ms(), cursor))
                    with self._limits.answer(len(event)):
                        for piece in pieces(event):
                            yield piece
                            await asyncio.sleep(0)  # lets the connection learn that its client left
                    del event
                if page.messages:
                    await self._host.touch(stream)
                is_first, start = False, page.next_offset
                if page.is_closed:
                    return
                if page.is_up_to_date and not await wait_for_news(self._host, stream, news, until):
                    return
            except (Refusal, ColdstreamError):
                return  # the client comes again, and is told then

    async def _body(self, request: Request, take: Callable[[int], None]) -> bytes:
        options = self._host.options
        limit = options.max_body_bytes
        length = request.headers.get("content-length", "0")
        too_large = Refusal(TOO_LARGE, f"a body has {limit} bytes at most")
        if length.isdigit() and int(length) > limit:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(options.body_within_s):
                async for part in request.stream():
                    if len(body) + len(part) > limit:
                        raise too_large
                    take(len(part))
                    body += part
        except TimeoutError as err:
            raise Refusal(TOO_SLOW, f"a body comes within {options.body_within_s:g} s") from err
        return bytes(body)


def _events_of(page: MessagePage, stream: HostedStream, cursor: str) -> bytes:
    control = server_events.control_event(
        to_token(page.next_offset), cursor=cursor, is_up_to_date=page.is_up_to_date, is_closed=page.is_closed
    )
    if not page.messages:
        return control
    return server_events.data_event(page.messages, stream.terms.content_type) + control


def _joined(page: MessagePage, stream: HostedStream) -> bytes:
    return join_messages(page.messages) if stream.terms.content_type.is_json else b"".join(page.messages)


def _page_headers(page: MessagePage, stream: HostedStream) -> dict[str, str]:
    headers = {"Content-Type": stream.terms.content_type.text, NEXT_OFFSET: to_token(page.next_offset)}
    if page.is_up_to_date:
        headers[UP_TO_DATE] = "true"
    if page.is_closed:
        headers[STREAM_CLOSED] = "true"
    return headers


def _metadata(stream: HostedStream) -> dict[str, str]:
    lifetime = stream.terms.lifetime
    headers = {"Content-Type": stream.terms.content_type.text}
    if lifetime.ttl_s is not None:
        headers["Stream-TTL"] = str(lifetime.ttl_s)
    if lifetime.expires_at is not None:
        headers["Stream-Expires-At"] = lifetime.expires_at
    if stream.is_closed:
        headers[STREAM_CLOSED] = "true"
    return headers


def _query_of(request: Request) -> tuple[Offset | EndOfStream, str | None, str | None]:
    offsets = request.query_params.getlist("offset")
    live = request.query_params.get("live")
    if len(offsets) > 1:
        raise InvalidQueryError("offset", "is there more than once")
    if live not in {None, _LONG_POLL, _EVENTS}:
        raise InvalidQueryError("live", f"is {_LONG_POLL} or {_EVENTS}")
    if live is not None and not offsets:
        raise InvalidQueryError("offset", "is missing: a live read says where it begins")
    place = parse_place(offsets[0]) if offsets else EndOfStream.FIRST
    return place, live, request.query_params.get("cursor")


def _fork_of(request: Request) -> ForkRequest | None:
    headers = request.headers
    source, at, sub = (headers.get(f"stream-{name}") for name in ("forked-from", "fork-offset", "fork-sub-offset"))
    if source is None:
        if at is not None or sub is not None:
            raise Refusal(INVALID, "Stream-Forked-From is missing")
        return None
    try:
        name = name_of_path(urlsplit(source).path)
    except (ValueError, InvalidInputError) as err:
        raise Refusal(INVALID, f"Stream-Forked-From: {source[:80]!r} is no URL of a stream") from err
    if name is None:
        raise Refusal(INVALID, f"Stream-Forked-From: {source[:80]!r} is no stream of this server")
    if sub is not None and not _SUB_OFFSET.fullmatch(sub):
        raise Refusal(INVALID, f"Stream-Fork-Sub-Offset: {sub[:40]!r} is no whole number")
    return ForkRequest(name, None if at is None else parse_token(at), int(sub or 0))


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() == "true"
