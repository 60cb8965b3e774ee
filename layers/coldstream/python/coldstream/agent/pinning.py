"""Pin the segments of one stream as they appear, whatever else the agent is busy with."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from coldstream.agent.failure_log import FailureLog
from coldstream.agent.losses import Losses
from coldstream.agent.stream_file import PendingLoss
from coldstream.agent.stream_progress import ArchivingProgress
from coldstream.retry import Backoff

QUIET_SCANS = 40
"""So many scans pass between two looks at a quiet stream. None is needed: its files are watched by their marks."""


class StreamPinning:
    """Looks at the broker's directory every `scan_s`, and at once after `wake`.

    At that of a quiet stream it looks seldom, as `StreamArchiver.wake_if_changed` wakes it.
    """

    def __init__(self, progress: ArchivingProgress, losses: Losses, failures: FailureLog, scan_s: float) -> None:
        self._progress = progress
        self._losses = losses
        self._failures = failures
        # The bound does not grow: it only spreads the looks of thousands of streams, which would otherwise come in
        # step.
        self._pauses = Backoff(scan_s, scan_s)
        self._quiet_pauses = Backoff(QUIET_SCANS * scan_s, QUIET_SCANS * scan_s)
        self._awake = asyncio.Event()

    def wake(self) -> None:
        """Look at once."""
        self._awake.set()

    async def run(self) -> None:
        """Pin until the stream's state is final."""
        progress = self._progress
        pins = progress.disk.disk.pins
        while not progress.state.is_final:
            # Cleared before the look: a segment that rolls during it wakes the next one.
            self._awake.clear()
            try:
                await progress.look()
                if pins.failure is not None:
                    self._failures.report(pins.failure)
            except FileNotFoundError:
                pass  # deleted while it was looked at; the next look finds what is left
            except Exception as err:  # noqa: BLE001  not even a bug may let retention delete what is not pinned
                self._failures.report(err)
            # After a failure, too: what was pinned before it can still be proven and archived.
            progress.changed.set()
            progress.pinned.set()
            pauses = self._quiet_pauses if progress.is_quiet else self._pauses
            await wait_for_event(self._awake, pauses.next_delay_s())

    async def give_up_oldest(self, why: str) -> None:
        """Release the oldest pin although it is not archived, unless the broker still has its offsets.

        Raises OSError when the loss cannot be written down; then the pin stays.
        """
        progress, disk = self._progress, self._progress.disk.disk
        # One turn for all of it. Another task could else release the oldest pin in between, and the next one, whose
        # loss nobody wrote down, would be given up in its place.
        async with progress.disk.turn:
            oldest = await asyncio.to_thread(disk.oldest)
            if oldest is None or oldest.lost is None:
                return
            # The archive may end inside this segment, and what it covers is not lost.
            first_offset = max(oldest.lost.first_offset, progress.archived_to)
            next_offset = oldest.lost.next_offset
            # The loss is written down before the pin is released: after a crash in between, the pin is still there; in
            # the other order, offsets would be gone and nobody would know.
            if first_offset < next_offset:
                self._losses.lose(PendingLoss(first_offset, next_offset, why))
            await asyncio.to_thread(disk.release, oldest.pin)
            # Before the turn ends: whoever looks at the disk next must not take what is missing now for a hole.
            progress.record(max(next_offset, first_offset))
        # Outside of the turn: this looks at the disk, and would wait for ever for a turn that it holds itself.
        await progress.advance(next_offset)


async def wait_for_event(event: asyncio.Event, timeout_s: float) -> None:
    """Wait until an event is set, but no longer than `timeout_s`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
