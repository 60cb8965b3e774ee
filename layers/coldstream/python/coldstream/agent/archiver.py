"""The archiver of one stream: pins, proves, stages, announces, and lets go, oldest first.

The next slice is announced only when the manifest covers the one before, so that the archive of a stream grows without
holes, and a reader that starts at its first offset misses nothing.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from coldstream.agent.delivery import Delivery
from coldstream.agent.disk.segments import Hole, StreamDisk, Wanted
from coldstream.agent.losses import Losses
from coldstream.agent.monitor.snapshot import snapshot
from coldstream.agent.monitor.status import StreamStatus
from coldstream.agent.proof.broker import Proof, Verdict
from coldstream.agent.proof.history import History
from coldstream.agent.proof.identity import StreamIdentity
from coldstream.agent.proof.management import BrokerStream
from coldstream.agent.proof.search import NameSearch
from coldstream.agent.services import Services
from coldstream.agent.stream_file import PendingLoss, StreamFile
from coldstream.errors import AccessDeniedError, BrokerRefusedError, ColdstreamError, NotFoundError, UnavailableError
from coldstream.format.chunk import ChunkHeader
from coldstream.ingest.slice import SegmentSlice
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.units import ChunkId, Offset, now_ms

log = logging.getLogger(__name__)

Found = TypeVar("Found")

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 60.0
LOOK_AGAIN_S = 0.05
MAX_LOOK_AGAIN_S = 1.0
UNPROVEN = "deleted before they were known to be committed"
ENDED = frozenset({"deleted", "excluded"})


class StreamArchiver:
    """Archives one incarnation, until it is deleted at the broker and nothing of it is left here.

    `is_backfill` says that it had rolled segments when the agent came; that ends once it has caught up.
    """

    def __init__(
        self, incarnation: Incarnation, disk: StreamDisk, memory: StreamFile, services: Services, *, is_backfill: bool
    ) -> None:
        self.incarnation = incarnation
        self.disk = disk
        self.state = "starting"
        self.identity = StreamIdentity(incarnation, memory, services.broker, self)
        self.losses = Losses(self.identity, services.archive, services.metrics, services.broker, services.host)
        self._services = services
        self._delivery = Delivery(services.archive, services.slots, services.metrics, services.every_ms)
        self._history = History(self.identity, services.archive, disk, self._on_disk, services.metrics)
        self._is_backfill = is_backfill
        self.archived_to: Offset | None = None
        self._last_failure: str | None = None
        self._rolled = asyncio.Event()
        self._news = asyncio.Event()
        self._pinned = asyncio.Event()
        self._disk_turn = asyncio.Lock()
        self._search = NameSearch(self, services.broker, services.naming, services.rules, services.namesakes)

    @property
    def stream(self) -> StreamId | None:
        """The stream, None until its names are proven."""
        return self.identity.stream

    @property
    def last_failure(self) -> str | None:
        """What failed last, or is missing; None when all goes well."""
        return self._last_failure or self.losses.failure or self._search.why or self._history.why

    @property
    def is_live(self) -> bool:
        """Whether the broker has files of it here. Raises UnavailableError when that cannot be told."""
        return self.disk.pins.is_live

    def wake(self) -> None:
        """Look at the broker's directory at once."""
        self._rolled.set()

    async def run(self) -> None:
        """Archive until the stream is gone. What fails is told, and tried again later: nothing here gives up."""
        pinning = asyncio.create_task(self._pin(), name=f"pins of {self.incarnation}")
        proving = asyncio.create_task(self._prove_ahead(), name=f"proofs of {self.incarnation}")
        try:
            await self._archive_on()
            proving.cancel()
            self.wake()
            await pinning
            await asyncio.to_thread(self.disk.pins.release_all)
            with suppress(OSError):
                self.identity.forget()
            if self.state == "deleted":
                self._services.namesakes.leave(self.incarnation)
        finally:
            pinning.cancel()
            proving.cancel()
            await asyncio.gather(pinning, proving, return_exceptions=True)

    async def _pin(self) -> None:
        """Pin what comes, whatever the rest is busy with."""
        while self.state not in ENDED:
            self._rolled.clear()
            try:
                await self._look()
                if self.disk.pins.failure is not None:
                    self._failed(self.disk.pins.failure)
            except FileNotFoundError:
                pass  # deleted while it was looked at
            except Exception as err:  # noqa: BLE001  not even a bug may let retention delete what is not pinned
                self._failed(err)
            self._news.set()
            self._pinned.set()
            await _wait(self._rolled, random.uniform(0.8, 1.0) * self._services.scan_s)  # noqa: S311  jitter

    async def _prove_ahead(self) -> None:
        """Prove what is pinned before its turn: it may have to wait, and a stream that is deleted proves nothing."""
        while True:
            await self._pinned.wait()
            self._pinned.clear()
            try:
                found = await self._on_disk(self.disk.provable, self.archived_to or Offset(0), now_ms())
                if found is not None and self.stream and found.header.next_offset > self.identity.committed_to:
                    await self.identity.prove(found.header)
            except Exception as err:  # noqa: BLE001  what matters fails again, and is told, when its turn comes
                log.debug("%s: not proven yet: %s", self.stream, err)

    async def _archive_on(self) -> None:
        delay_s = FIRST_DELAY_S
        again_s = LOOK_AGAIN_S
        while self.state not in ENDED:
            self._news.clear()
            try:
                goes_on = await self._step()
            except FileNotFoundError as err:  # a pin was let go, or the broker truncated: look again
                if again_s > MAX_LOOK_AGAIN_S:
                    self._failed(err)
                self.wake()
                await asyncio.sleep(again_s)
                again_s = min(2 * again_s, 2 * MAX_LOOK_AGAIN_S)
                continue
            except Exception as err:  # noqa: BLE001  one stream's trouble, even a bug, must not stop the others
                self._failed(err)
                await asyncio.sleep(random.uniform(delay_s / 2, delay_s))  # noqa: S311  jitter, not a secret
                delay_s = min(2 * delay_s, MAX_DELAY_S)
                continue
            delay_s = FIRST_DELAY_S
            again_s = LOOK_AGAIN_S
            self._last_failure = None
            if not goes_on and self.state not in ENDED:
                self._is_backfill = False
                await _wait(self._news, self._pause_s())

    async def give_up_oldest(self, why: str) -> None:
        """Let go of the oldest pin although it is not archived; what is lost by that is written down first.

        What the broker still has is kept. Raises OSError when it cannot be written down.
        """
        async with self._disk_turn:
            oldest = await asyncio.to_thread(self.disk.oldest)
            if oldest is None:
                return
            pin, offsets = oldest
            first_offset = max(offsets.first_offset, self.archived_to or Offset(0))
            if first_offset < offsets.next_offset:
                self.losses.lose(PendingLoss(first_offset, offsets.next_offset, why))
            await asyncio.to_thread(self.disk.release, pin)
            # Before anybody else looks at the disk: what is missing there now is no hole.
            self.archived_to = max(offsets.next_offset, first_offset)
        await self._go_on(offsets.next_offset)

    async def status(self, known: BrokerStream | None) -> StreamStatus:
        """Take a snapshot; `known` is what the broker says of the stream's retention."""
        return await self._on_disk(snapshot, self, known)

    async def _step(self) -> bool:
        """Do one thing; return whether there may be more to do at once."""
        if not self.disk.segments:
            return await self._begin()
        if not await self._is_wanted():
            return False
        if self.archived_to is None:
            first_offset = await self._on_disk(self.disk.first_offset)
            if first_offset is None:
                return True
            await self.losses.suspect(Offset(0), first_offset, unseen=True)
            covered_to = await self._delivery.covered_to(self.incarnation, first_offset)
            await self._go_on(await self._history.begin(first_offset, covered_to))
        assert self.archived_to is not None
        await self.losses.tell_if_possible()
        found = await self._on_disk(self.disk.wanted, self.archived_to, now_ms())
        if isinstance(found, Hole):
            await self._pass(found)
            return True
        return await self._archive_one_of(found)

    async def _begin(self) -> bool:
        """Look for the first segment; end when there is none, and none will come."""
        await self._look()
        if self.disk.segments:
            return True
        self.state = "following"
        is_live = self.is_live
        await self.losses.tell()
        if not is_live and not self.losses.are_suspected:
            self.state = "deleted"
        return False

    async def _archive_one_of(self, found: list[Wanted]) -> bool:
        refuted: ChunkHeader | None = None
        for wanted in found:
            witness = wanted.witness.header
            proof = await self._prove(witness)
            if proof is not None and proof.verdict is Verdict.COMMITTED:
                await self._archive(wanted.slice)
                return True
            if proof is not None and proof.verdict in {Verdict.ANOTHER, Verdict.APART}:
                refuted = refuted or (proof.chunk if proof.verdict is Verdict.ANOTHER else witness)
        if refuted is not None:
            await self._let_go_of(refuted)
            return True
        if not self.disk.pins.is_live and await self.identity.is_gone():
            return await self._archive_proven() or await self._finish_deleted()
        self.state = "following"
        return False

    async def _is_wanted(self) -> bool:
        """Find out which stream this is, and whether it is to be archived."""
        if self.stream is None and not await self._find_names():
            return False
        assert self.stream is not None
        if not self._services.rules.takes(self.stream.vhost, self.stream.name):
            self.state = "excluded"
            return False
        return True

    async def _find_names(self) -> bool:
        """Search for the names; return whether they are known now."""
        found = await self._search.find()
        if found.stream is None or found.first is None:
            self.state = found.state
            return False
        self.identity.named(found.stream, found.proof, found.first)
        self._services.metrics.forget(self.incarnation)  # what was counted without a name
        return True

    async def user_chunks(self, turn: int) -> tuple[ChunkHeader, ChunkHeader] | None:
        """Return the first user chunk on this disk and another, in each turn another; None when there is none."""
        first = await self._on_disk(self.disk.first_user_chunk)
        if first is None:
            return None
        another = await self._on_disk(self.disk.some_user_chunk, turn)
        return first.header, (another or first).header

    async def _prove(self, witness: ChunkHeader) -> Proof | None:
        """Prove by a user chunk on this disk; None when the broker has no such stream, nor has it files of it here."""
        if await self.identity.is_proven(witness):
            return Proof(Verdict.COMMITTED, witness)
        try:
            return await self.identity.prove(witness)
        except NotFoundError:
            if self.disk.pins.is_live:
                raise
            return None

    async def _let_go_of(self, refuted: ChunkHeader) -> None:
        """Let go of a segment that cannot be proven any more, but for what is, unless the broker still has it."""
        archived_to = self.archived_to or Offset(0)
        found = await self._on_disk(self.disk.refuted, refuted, archived_to)
        if found is None:
            raise UnavailableError(
                f"{self.stream}: the broker has another chunk at {refuted.chunk_id}; this replica is behind"
            )
        if await self._archive_proven():
            return
        pin, lost = found
        if lost is not None:
            self.losses.lose(PendingLoss(lost.first_offset, lost.next_offset, UNPROVEN))
            if lost.first_offset == archived_to:
                archived_to = lost.next_offset
        log.warning("%s: let go of %s, which is not known to be committed", self.stream, pin.path.name)
        await self._on_disk(self.disk.release, pin)
        await self._go_on(archived_to)

    async def _archive_proven(self) -> bool:
        """Archive what is proven of a segment that will not be proven whole; return whether there was anything."""
        part = await self._on_disk(self.disk.wanted_before, self.archived_to or Offset(0), self.identity.committed_to)
        if part is None or not await self.identity.is_proven(part.witness.header):
            return False
        await self._archive(part.slice)
        return True

    async def _archive(self, chunk: SegmentSlice) -> None:
        assert self.stream is not None
        is_contested = chunk.first_offset < self._history.contested_to
        await self._delivery.deliver(
            chunk, self.stream, is_backfill=self._is_backfill, is_contested=is_contested, tell=self._tell
        )
        await self._go_on(chunk.next_offset)

    async def _pass(self, hole: Hole) -> None:
        """Go on behind offsets that are not on this disk; they are lost unless the archive has them, or gets them."""
        if hole.first_offset < (self.archived_to or Offset(0)):
            return  # what was missing was given up meanwhile, which is said already
        if self.disk.pins.failure is not None and min(self.disk.pins.unpinned) < hole.next_offset:
            raise self.disk.pins.failure
        await self.losses.suspect(hole.first_offset, hole.next_offset)
        await self._go_on(hole.next_offset)

    def _tell(self, state: str) -> None:
        self.state = state

    async def _go_on(self, archived_to: Offset) -> None:
        """Take note of how far the archive is, and let go of what it has."""
        self.archived_to = max(archived_to, self.archived_to or Offset(0))
        await self._look()
        self._news.set()

    async def _look(self) -> None:
        await self._on_disk(self.disk.look, self.archived_to or Offset(0), self.identity.committed_to)

    async def _finish_deleted(self) -> bool:
        """End a stream that the broker has deleted: what could not be proven is given up, and that is said.

        Return False while it is not known of all offsets whether they are lost.
        """
        if self.losses.are_suspected:
            return False
        left = await self._on_disk(self.disk.unproven, self.archived_to or Offset(0))
        if left is not None:
            self.losses.lose(PendingLoss(left.first_offset, left.next_offset, UNPROVEN))
        await self.losses.tell()
        self.state = "deleted"
        return True

    async def find(self, chunk_id: ChunkId) -> ChunkHeader | None:
        """Find a chunk on this disk."""
        found = await self._on_disk(self.disk.find, chunk_id)
        return None if found is None else found.header

    async def is_linked(self, earlier: ChunkHeader, later: ChunkHeader) -> bool:
        """Tell whether two chunks on this disk are of one log."""
        return await self._on_disk(self.disk.is_linked, earlier, later)

    async def _on_disk(self, call: Callable[..., Found], *arguments: object) -> Found:
        """Look at the disk in a thread, one at a time."""
        async with self._disk_turn:
            return await asyncio.to_thread(call, *arguments)

    def _pause_s(self) -> float:
        """Return how long to rest: with a max-lag, spans of time close without anybody saying so."""
        if self.stream is None:
            return self._search.pause_s(self._services.scan_s)
        every_ms = self._services.every_ms
        return self._services.scan_s if every_ms is None else min(self._services.scan_s, every_ms / 2000)

    def _failed(self, err: Exception) -> None:
        text = f"{type(err).__name__}: {err}"
        if text != self._last_failure:
            expected = isinstance(err, ColdstreamError | OSError)
            log.warning("%s: %s", self.stream or self.incarnation, err, exc_info=None if expected else err)
        self._last_failure = text
        self._services.metrics.failed(err, self.stream or self.incarnation)
        if isinstance(err, BrokerRefusedError):
            self.state = "refused"
        elif isinstance(err, AccessDeniedError):
            self._services.archive.renew()


async def _wait(event: asyncio.Event, timeout_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
