"""`coldstream read --follow`: messages from the archive, then live from the broker."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import typer

from coldstream.cli.messages import ReadEnd, StreamForm
from coldstream.consumer.consumer import Consumer
from coldstream.consumer.items import MessageDelivery
from coldstream.errors import (
    ConflictError,
    GapError,
    InvalidQueryError,
    InvalidSettingError,
    NotOwnerError,
    OutcomeUnknownError,
    UnavailableError,
)
from coldstream.groups.consumer_group import ConsumerGroup
from coldstream.manifest.shard_position import ShardPosition
from coldstream.manifest.shard_starts import ShardStart
from coldstream.terminal.exits import ExitCode

log = logging.getLogger(__name__)

_FLUSH_EVERY_S = 0.1


@dataclass(frozen=True, slots=True)
class FollowRequest:
    """The stream to follow, where to begin, and how."""

    vhost: str
    name: str
    start: ShardStart
    resolver: str
    broker: str
    consumer_name: str | None
    on_gap: Literal["raise", "skip"]
    order: Literal["key", "time", "arrival"]
    group: str | None = None


def follow_stream(request: FollowRequest, end: ReadEnd, form: StreamForm) -> None:
    """Write messages until `end`, or until SIGINT, SIGTERM or SIGHUP, which end the command with code 130."""
    logging.basicConfig(level=logging.WARNING, format="coldstream: %(message)s", stream=sys.stderr)
    if asyncio.run(_is_interrupted(request, end, form)):
        raise typer.Exit(ExitCode.INTERRUPTED)


async def _is_interrupted(request: FollowRequest, end: ReadEnd, form: StreamForm) -> bool:
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


async def _write(request: FollowRequest, end: ReadEnd, form: StreamForm) -> None:
    async with Consumer(
        request.name,
        request.start,
        resolver=request.resolver,
        broker=request.broker,
        vhost=request.vhost,
        name=request.consumer_name,
        on_gap=request.on_gap,
        order=request.order,
        group=None if request.group is None else ConsumerGroup(request.group, table_name()),
    ) as consumer:
        written = WrittenMessages(consumer, commits=request.group is not None)
        copying = asyncio.create_task(_copy(consumer, end, form, written))
        try:
            # Standard output is flushed by the clock: many messages take one write, and the last of a few do not wait
            # in the buffer until the next one comes. `wait` does not cancel the task when its time is up.
            while not (await asyncio.wait({copying}, timeout=_FLUSH_EVERY_S))[0]:
                await written.flush()
            await copying
        finally:
            copying.cancel()
            # The task must be over before the consumer closes, or it would read from a closed one. A second signal
            # cancels this wait, too, and what was written is flushed all the same.
            with suppress(asyncio.CancelledError):
                await asyncio.wait({copying})
            await written.flush()
            if isinstance(consumer.position, ShardPosition) and request.group is None:
                typer.echo(f"coldstream: go on with --from {consumer.position}", err=True)


class WrittenMessages:
    """Which messages were written last. `flush` commits them, if the consumer is in a group."""

    def __init__(self, consumer: Consumer, *, commits: bool) -> None:
        self._consumer = consumer
        self._commits = commits
        self._last: dict[int | None, MessageDelivery] = {}

    def add(self, delivery: MessageDelivery) -> None:
        """Take note of a message that was written."""
        if self._commits:
            self._last[delivery.partition] = delivery

    async def flush(self) -> None:
        """Flush standard output, then commit: what was committed was written."""
        last, self._last = self._last, {}
        sys.stdout.buffer.flush()
        for number, delivery in last.items():
            try:
                await self._consumer.store_offset(delivery)
            except NotOwnerError:
                continue  # whoever has the partition now writes it again
            except (ConflictError, OutcomeUnknownError, UnavailableError) as err:
                log.warning("%s: not committed yet: %s", delivery.stream, err)
                self._last.setdefault(number, delivery)


def table_name() -> str:
    """Return the name of the manifest's table. Raises InvalidSettingError."""
    name = os.environ.get("COLDSTREAM_TABLE")
    if not name:
        raise InvalidSettingError("COLDSTREAM_TABLE", "is not set: it names the table that keeps the group")
    return name


async def _copy(consumer: Consumer, end: ReadEnd, form: StreamForm, written: WrittenMessages) -> None:
    number = 0
    try:
        async for delivery in consumer.deliveries():
            message = delivery.message
            if consumer.is_sharded and end.is_bounded:
                raise InvalidQueryError("--to", "is for one stream, and this one is sharded; --limit ends it")
            if end.is_before(message):
                return
            sys.stdout.buffer.write(form(message, delivery.stream if consumer.is_sharded else None))
            written.add(delivery)
            number += 1
            if number == end.limit:
                return
    except GapError as gap:
        if not end.is_before_gap(gap):
            raise
