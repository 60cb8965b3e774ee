"""`PublishAppends`: what one connection's publishers have given, on its way into streams: batch by batch, in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from coldstream.errors import ColdstreamError, InvalidInputError
from coldstream.gateway.alone.direct_host import DirectHost
from coldstream.gateway.alone.publish_bounds import PublishBounds
from coldstream.gateway.alone.published import PublishedEntry
from coldstream.gateway.alone.publishers import DeclaredPublisher, batch_of, cost_bytes
from coldstream.streams.batch import MAX_BATCH_ENTRIES
from coldstream.units import Offset

_LOG = logging.getLogger(__name__)
_Tell = Callable[[DeclaredPublisher, list[PublishedEntry]], None]


class PublishAppends:
    """Appends, and tells of each batch whether it is durable (`confirm`) or was never stored (`refuse`)."""

    def __init__(self, host: DirectHost, bounds: PublishBounds, confirm: _Tell, refuse: _Tell) -> None:
        self._host = host
        self._bounds = bounds
        self._confirm = confirm
        self._refuse = refuse
        self._tasks: set[asyncio.Task[None]] = set()

    def append(self, publisher: DeclaredPublisher, entries: list[PublishedEntry]) -> None:
        """Append entries, which the bounds count already, and count them no more once that has ended."""
        while entries:
            # A frame of Publish may hold more than a batch takes.
            part, entries = entries[:MAX_BATCH_ENTRIES], entries[MAX_BATCH_ENTRIES:]
            self._append(publisher, part)

    async def settled(self) -> None:
        """Wait until all that was given is appended, or has failed."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _append(self, publisher: DeclaredPublisher, entries: list[PublishedEntry]) -> None:
        # Which of them are new is decided here, in the order in which they came; nothing is awaited before the append.
        turn, handle, reference = publisher.turn, publisher.opened.handle, publisher.reference
        new = entries if reference is None else turn.take_new(entries)
        batch = batch_of(new)
        appending = turn.appending if reference is not None else None
        if batch is not None:
            last = new[-1].publishing_id if reference is not None else None
            appending = asyncio.create_task(handle.append(batch, publisher=reference, publishing_id=last))
            if reference is not None:
                turn.appending = appending
        task = asyncio.create_task(self._end(publisher, entries, appending))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(
        self, publisher: DeclaredPublisher, entries: list[PublishedEntry], appending: asyncio.Task[Offset | None] | None
    ) -> None:
        """Tell of entries once the batch is durable that has the last of them, or has failed."""
        opened = publisher.opened
        try:
            if appending is not None:
                await asyncio.shield(appending)
        except InvalidInputError as err:
            _LOG.warning("refused a batch", extra={"stream": publisher.stream, "error": str(err)})
            self._refuse(publisher, entries)
            # What was counted as given is not there: whoever publishes again begins with what is.
            self._host.lose(opened, err)
        except ColdstreamError as err:
            # As when a broker's leader is gone: whether it is stored is unknown, and the client is told that the stream
            # has moved. Who publishes with a name sends it again, once.
            self._host.lose(opened, err)
        except Exception as err:  # noqa: BLE001  a defect of ours: the client must not wait for ever
            _LOG.exception("an append failed", extra={"stream": publisher.stream})
            self._host.lose(opened, ColdstreamError(f"{type(err).__name__}: {err}"))
        else:
            opened.announce()
            self._confirm(publisher, entries)
        finally:
            if publisher.turn.appending is appending and appending is not None and appending.done():
                publisher.turn.appending = None
                opened.drop_idle(publisher.reference, publisher.turn)
            self._bounds.give(cost_bytes(entries))
