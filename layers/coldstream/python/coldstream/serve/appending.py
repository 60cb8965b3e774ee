"""Appends: checked and begun in one step under the stream's lock, acknowledged outside of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from coldstream.errors import ColdstreamError, InvalidInputError
from coldstream.serve.hosted_stream import HostedStream, LastAppend
from coldstream.serve.protocol.content_type import ContentType
from coldstream.serve.protocol.json_messages import split_messages
from coldstream.serve.protocol.offset_token import to_token
from coldstream.serve.protocol.producer import EPOCH, SEQ, Judgement, ProducerRequest, ProducerState
from coldstream.serve.refusal import CLOSED, OUT_OF_ORDER, READ_ONLY, SEQUENCE_GAP, STALE_PRODUCER
from coldstream.serve.stream_host import StreamHost
from coldstream.streams.batch import MAX_BATCH_ENTRIES
from coldstream.units import Offset
from coldstream.web.refusal import INVALID, TOO_LARGE, Refusal

NEXT_OFFSET, STREAM_CLOSED = "Stream-Next-Offset", "Stream-Closed"


@dataclass(frozen=True, slots=True)
class AppendRequest:
    """What a POST asks for. Without messages it closes the stream, and nothing else."""

    messages: Sequence[bytes]
    producer: ProducerRequest | None = None
    seq: bytes | None = None
    closes: bool = False


@dataclass(frozen=True, slots=True)
class AppendAnswer:
    """What became of it. `producer` is the last request that the stream has of the producer."""

    next_offset: Offset
    is_new: bool
    is_closed: bool
    producer: ProducerState | None = None


def messages_of(body: bytes, content_type: ContentType) -> list[bytes]:
    """Return the messages of a body: the values of JSON, or the bytes as one. Raises InvalidInputError, Refusal."""
    if not content_type.is_json:
        return [body]
    messages = split_messages(body, MAX_BATCH_ENTRIES + 1)
    if len(messages) > MAX_BATCH_ENTRIES:
        raise Refusal(TOO_LARGE, f"a body has {MAX_BATCH_ENTRIES} values at most")
    return messages


async def append(host: StreamHost, stream: HostedStream, request: AppendRequest) -> AppendAnswer:
    """Append and close as a request asks. It is durable when this returns.

    Closing comes right after the messages; nothing gets between. Raises Refusal, and errors of the stream: after these
    the stream is opened again by the next request, and whether the messages are in it is known only if they say so.
    """
    if stream.is_archived:
        raise Refusal(READ_ONLY, f"{stream.name!r} is a broker's stream", {"Allow": "GET, HEAD, OPTIONS"})
    try:
        async with stream.lock:
            duplicate = await _find_duplicate(host, stream, request)
            if duplicate is None:
                if stream.is_closed:
                    await host.check_owner(stream, within_s=0)
                    return _of_closed(stream, request)
                await _check_seq(stream, request)
                acknowledged = _begin(stream, request)
                if request.closes:
                    await _close(stream, acknowledged)
        if duplicate is not None:
            return await _repeated(stream, request, duplicate)
        next_offset = stream.tail if acknowledged is None else await acknowledged
    except InvalidInputError:
        raise  # nothing was begun
    except ColdstreamError as err:
        host.lose(stream, err)
        raise
    host.confirm_owner(stream)
    if request.seq is not None:
        await stream.keep_seq(request.seq)
    stream.announce()
    state = None if request.producer is None else request.producer.state
    is_closed = request.closes
    return AppendAnswer(stream.tail if is_closed else next_offset, bool(request.messages), is_closed, state)


async def _find_duplicate(host: StreamHost, stream: HostedStream, request: AppendRequest) -> LastAppend | None:
    """Return the producer's last request if this one repeats it, or one before.

    Cost: a GetItem, unless the request is to be appended. Raises Refusal if it is out of turn.
    """
    producer = request.producer
    if producer is None:
        return None
    last = await stream.last_of(producer)
    judgement = producer.judge(None if last is None else last.state)
    if judgement is not Judgement.ACCEPT:
        # No append will tell that another server has the stream, and knows more of the producer, or has replaced it.
        await host.check_owner(stream, within_s=0)
    if judgement is Judgement.DUPLICATE:
        return last
    if judgement is Judgement.STALE_EPOCH and last is not None:
        raise Refusal(STALE_PRODUCER, f"the producer is at epoch {last.state.epoch}", {EPOCH: str(last.state.epoch)})
    if stream.is_closed:
        return None
    if judgement is Judgement.EPOCH_MUST_START_AT_ZERO:
        raise Refusal(INVALID, f"{SEQ}: a new epoch begins at 0, not at {producer.state.seq}")
    if judgement is Judgement.GAP:
        expected = 0 if last is None else last.state.seq + 1
        headers = {"Producer-Expected-Seq": str(expected), "Producer-Received-Seq": str(producer.state.seq)}
        raise Refusal(SEQUENCE_GAP, f"{expected} comes next, not {producer.state.seq}", headers)
    return None


async def _repeated(stream: HostedStream, request: AppendRequest, last: LastAppend) -> AppendAnswer:
    """Answer a repeated request, once the one before is acknowledged; close the stream if that was left undone."""
    if last.acknowledged is not None:
        # Appends are acknowledged in order: with the producer's last one, all before are durable.
        await asyncio.shield(last.acknowledged)
    if request.closes and request.producer is not None and last.state == request.producer.state:
        async with stream.lock:
            if not stream.is_closed:
                await _close(stream, None)
        stream.announce()
    return AppendAnswer(stream.tail, is_new=False, is_closed=stream.is_closed, producer=last.state)


def _of_closed(stream: HostedStream, request: AppendRequest) -> AppendAnswer:
    if not request.messages and request.closes:
        return AppendAnswer(stream.tail, is_new=False, is_closed=True)
    headers = {STREAM_CLOSED: "true", NEXT_OFFSET: to_token(stream.tail)}
    raise Refusal(CLOSED, f"{stream.name!r} takes nothing any more", headers)


async def _check_seq(stream: HostedStream, request: AppendRequest) -> None:
    """Take a Stream-Seq, which is the stream's, not a writer's. Raises Refusal unless it is after the last one."""
    if request.seq is None:
        return
    if not stream.knows_seq:
        stream.last_seq, stream.knows_seq = await stream.side.last_seq(), True
    if stream.last_seq is not None and request.seq <= stream.last_seq:
        raise Refusal(OUT_OF_ORDER, f"the last Stream-Seq was {stream.last_seq.decode('latin-1')!r}")
    stream.last_seq = request.seq


def _begin(stream: HostedStream, request: AppendRequest) -> asyncio.Future[Offset] | None:
    """Begin the append: from here on its place in the stream is given. The future has the offset after it."""
    producer = request.producer
    acknowledged = None
    if request.messages:
        acknowledged = asyncio.ensure_future(_append(stream, request))
        acknowledged.add_done_callback(_retrieve)
    if producer is not None:
        stream.remember(producer, LastAppend(producer.state, acknowledged))
    return acknowledged


async def _append(stream: HostedStream, request: AppendRequest) -> Offset:
    producer = request.producer
    base = await stream.handle.append(
        request.messages,
        publisher=None if producer is None else producer.publisher,
        publishing_id=None if producer is None else producer.state.publishing_id,
    )
    # Live readers wait for what is acknowledged, whether or not the client that sent it still waits for the answer.
    stream.announce()
    return stream.tail if base is None else Offset(base + len(request.messages))


async def _close(stream: HostedStream, acknowledged: asyncio.Future[Offset] | None) -> None:
    if acknowledged is not None:
        await acknowledged
    await stream.handle.seal()


def _retrieve(done: asyncio.Future[Offset]) -> None:
    """Look at the outcome, which nobody else may: the client may be gone."""
    if not done.cancelled():
        done.exception()
