"""`coldstream read --follow`: messages from the archive, then live from the broker."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import typer

from coldstream.cli.messages import ReadEnd
from coldstream.console.exits import ExitCode
from coldstream.consumer.consumer import Consumer
from coldstream.errors import GapError
from coldstream.format.amqp.message import Message
from coldstream.manifest.spec import OffsetSpec

_FLUSH_EVERY_S = 0.1

MessageForm = Callable[[Message], bytes]


@dataclass(frozen=True, slots=True)
class FollowRequest:
    """The stream to follow, where to begin, and how."""

    vhost: str
    name: str
    start: OffsetSpec
    resolver: str
    broker: str
    consumer_name: str | None
    on_gap: Literal["raise", "skip"]


def follow_stream(request: FollowRequest, end: ReadEnd, form: MessageForm) -> None:
    """Write messages until `end`, or until SIGINT, SIGTERM or SIGHUP, which end the command with code 130."""
    logging.basicConfig(level=logging.WARNING, format="coldstream: %(message)s", stream=sys.stderr)
    if asyncio.run(_is_interrupted(request, end, form)):
        raise typer.Exit(ExitCode.INTERRUPTED)


async def _is_interrupted(request: FollowRequest, end: ReadEnd, form: MessageForm) -> bool:
    """Write messages, and tell whether a signal ended that."""
    writing = asyncio.create_task(_write(request, end, form))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP, and means it
            loop.add_signal_handler(number, writing.cancel)
    try:
        await writing
    except asyncio.CancelledError:
        return True
    return False


async def _write(request: FollowRequest, end: ReadEnd, form: MessageForm) -> None:
    async with Consumer(
        request.name,
        request.start,
        resolver=request.resolver,
        broker=request.broker,
        vhost=request.vhost,
        name=request.consumer_name,
        on_gap=request.on_gap,
    ) as consumer:
        copying = asyncio.create_task(_copy(consumer, end, form))
        try:
            # Standard output is flushed by the clock: many messages take one write, and the last of a few do not wait
            # in the buffer until the next one comes. `wait` does not cancel the task when its time is up.
            while not (await asyncio.wait({copying}, timeout=_FLUSH_EVERY_S))[0]:
                sys.stdout.buffer.flush()
            await copying
        finally:
            copying.cancel()
            # The task must be over before the consumer closes, or it would read from a closed one. A second signal
            # cancels this wait, too, and what was written is flushed all the same.
            with suppress(asyncio.CancelledError):
                await asyncio.wait({copying})
            sys.stdout.buffer.flush()


async def _copy(consumer: Consumer, end: ReadEnd, form: MessageForm) -> None:
    number = 0
    try:
        async for message in consumer.messages():
            if end.is_before(message):
                return
            sys.stdout.buffer.write(form(message))
            number += 1
            if number == end.limit:
                return
    except GapError as gap:
        if not end.is_before_gap(gap):
            raise
