"""`coldstream read --follow`: messages out of the archive, and then live."""

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

from coldstream.cli.until import Until
from coldstream.console.exits import ExitCode
from coldstream.consumer.consumer import Consumer
from coldstream.errors import GapError
from coldstream.format.amqp.message import Message
from coldstream.manifest.spec import OffsetSpec

_FLUSH_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class Following:
    """What to follow, from where on, and how."""

    vhost: str
    name: str
    start: OffsetSpec
    resolver: str
    broker: str
    consumer_name: str | None
    on_gap: Literal["raise", "skip"]


def follow_stream(where: Following, until: Until, form: Callable[[Message], bytes]) -> None:
    """Write messages until the end that was asked for, or SIGINT, SIGTERM or SIGHUP, which end it with code 130."""
    logging.basicConfig(level=logging.WARNING, format="coldstream: %(message)s", stream=sys.stderr)
    if asyncio.run(_until_signal(where, until, form)):
        raise typer.Exit(ExitCode.INTERRUPTED)


async def _until_signal(where: Following, until: Until, form: Callable[[Message], bytes]) -> bool:
    """Return whether a signal ended it."""
    writing = asyncio.create_task(_write(where, until, form))
    loop = asyncio.get_running_loop()
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(ending) is not signal.SIG_IGN:  # under nohup, a hangup is ignored
            loop.add_signal_handler(ending, writing.cancel)
    try:
        await writing
    except asyncio.CancelledError:
        return True
    return False


async def _write(where: Following, until: Until, form: Callable[[Message], bytes]) -> None:
    async with Consumer(
        where.name,
        where.start,
        resolver=where.resolver,
        broker=where.broker,
        vhost=where.vhost,
        name=where.consumer_name,
        on_gap=where.on_gap,
    ) as consumer:
        copying = asyncio.create_task(_copy(consumer, until, form))
        try:
            # Many messages, one write; and few messages, soon.
            while not (await asyncio.wait({copying}, timeout=_FLUSH_EVERY_S))[0]:
                sys.stdout.buffer.flush()
            await copying
        finally:
            copying.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({copying})
            sys.stdout.buffer.flush()


async def _copy(consumer: Consumer, until: Until, form: Callable[[Message], bytes]) -> None:
    number = 0
    try:
        async for message in consumer.messages():
            if until.is_past(message):
                return
            sys.stdout.buffer.write(form(message))
            number += 1
            if number == until.limit:
                return
    except GapError as gap:
        if not until.is_before(gap):
            raise
