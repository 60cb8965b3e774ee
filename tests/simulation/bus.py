"""The event bus, its queue, and the upload function: events come late, twice, and in any order; functions die.

An event that failed too often is a dead letter. Somebody redrives these now and then.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from contextlib import suppress

from coldstream.archive.events import event_of
from coldstream.archive.missing import record_loss
from coldstream.archive.segment_lost import SegmentLost
from coldstream.archive.upload import Uploader
from coldstream.errors import ColdstreamError
from coldstream.units import TimestampMs
from tests.simulation.stores import Trouble
from tests.support.compacting import Killed

VISIBILITY_S = 360.0
MAX_RECEIVES = 3


class EventQueue:
    """The bus. `uploader` has stores that fail by `trouble`. `say` is told what happens."""

    def __init__(
        self,
        rng: random.Random,
        uploader: Uploader,
        trouble: Trouble,
        now: Callable[[], TimestampMs],
        say: Callable[[str], None],
    ) -> None:
        self.rng = rng
        self.uploader = uploader
        self.trouble = trouble
        self.is_running = True
        self.dead: list[str] = []
        self.lost: list[SegmentLost] = []
        self.quarantined: list[str] = []
        self._now = now
        self._say = say
        self._under_way = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is on its way."""
        return not self._under_way and not self.dead

    def put(self, *, source: str, detail_type: str, detail: str) -> None:
        event = json.dumps({"source": source, "detail-type": detail_type, "detail": json.loads(detail)})
        for _ in range(self.rng.choice([1, 1, 1, 2])):
            self._send(event, self.rng.choice([0.1, 1, 1, 20, 200]), 1)

    def redrive(self) -> None:
        """Send all dead letters again."""
        dead, self.dead = self.dead, []
        for event in dead:
            self._send(event, self.rng.uniform(0, 5), 1)

    def _send(self, event: str, delay_s: float, receive: int) -> None:
        self._under_way += 1
        asyncio.get_running_loop().call_later(delay_s, self._receive, event, receive)

    def _receive(self, event: str, receive: int) -> None:
        self._under_way -= 1
        if self.is_running:
            with suppress(Killed, ColdstreamError):
                self._handle(event)
                return
        if receive < MAX_RECEIVES:
            self._send(event, VISIBILITY_S, receive + 1)
        else:
            self._say("a dead letter")
            self.dead.append(event)

    def _handle(self, body: str) -> None:
        event = event_of(body)
        if isinstance(event, SegmentLost):
            record_loss(self.uploader.table, self.uploader.control, event, self._now)
            self.lost.append(event)
            self._say(f"lost {event.first_offset} to {event.next_offset}: {event.reason}")
            return
        result = self.uploader.upload(event)
        if result.reason is not None:
            self.quarantined.append(result.reason)
        self._say(f"archived {event.first_offset} to {event.next_offset}: {result.fragments_committed} fragments")
