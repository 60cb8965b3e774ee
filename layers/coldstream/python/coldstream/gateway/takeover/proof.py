"""The proof that the broker's log, to which a subscription was just made, is the one that the archive has.

Offsets alone do not prove it: a stream that was deleted and declared again has the same ones. The last archived user
chunk, the *witness*, does: two logs that hold the same chunk are equal up to it. It is asked for after the subscription
was confirmed. If the stream is deleted after that, the broker ends the subscription.
"""

from __future__ import annotations

import asyncio
import logging

from coldstream.errors import IncarnationError, UnavailableError
from coldstream.gateway.history.port import ArchivedHeader
from coldstream.gateway.takeover.parts import TakeoverParts
from coldstream.gateway.takeover.plan import ArchiveStart
from coldstream.manifest.spec import FIRST, AtOffset
from coldstream.units import Offset

log = logging.getLogger(__name__)


class LogProof:
    """The proof for one subscription that begins in the archive."""

    def __init__(self, parts: TakeoverParts, stream: str, start: ArchiveStart) -> None:
        self._parts = parts
        self._stream = stream
        self._start = start
        self._is_proven = start.witness is None

    async def check(self) -> None:
        """Ask, before the client is sent anything. Raises IncarnationError for another log.

        A broker that does not have the witness may be a replica that is behind: then its first chunk decides for now.
        """
        if await self._ask():
            return
        first = await self._parts.view.header(self._stream, FIRST)
        if first is None:
            return  # it has deleted all but an empty segment, or is new: its next chunk tells
        archived = await self._archived(Offset(first.chunk_id))
        # Another log's first chunk may lie before what the broker had deleted: retention never goes back.
        if first.chunk_id <= self._start.start or (archived is not None and not archived.is_of(first)):
            raise self._error(f"its first chunk, at offset {first.chunk_id}, is another one")

    async def wait(self) -> None:
        """Wait for the proof, before the broker goes on: for a replica that is behind, but not for ever.

        Raises IncarnationError.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + self._parts.options.archive_wait_s
        while True:
            await self.check()
            if self._is_proven:
                return
            if clock() >= end:
                raise self._error(f"it does not have all that was archived, up to offset {self._start.end}")
            await asyncio.sleep(self._parts.options.archive_poll_s)

    async def _ask(self) -> bool:
        """Tell whether it is proven. Raises IncarnationError for another log."""
        witness = self._start.witness
        if self._is_proven or witness is None:
            return True
        if self._has_no_id():
            return self._believe()
        try:
            found = await self._parts.view.header(self._stream, AtOffset(Offset(witness.header.chunk_id)))
        except UnavailableError as err:
            if not err.retryable:
                raise
            if self._has_no_id():
                return self._believe()  # the last one was taken meanwhile
            log.warning(
                "stream %r: the broker is not asked for chunk %d: %s", self._stream, witness.header.chunk_id, err
            )
            return False
        if found is None:
            return False
        if found.chunk_id <= witness.header.chunk_id:
            if not witness.is_of(found):
                raise self._error(f"its chunk at offset {found.chunk_id} is not the archived one")
        else:
            # Retention has deleted the witness. Epochs never fall, and of a stream that was declared again the archive
            # knows sooner or later.
            await self._archived(Offset(found.chunk_id))
            if found.epoch < witness.header.epoch:
                raise self._error(f"its first chunk, at offset {found.chunk_id}, is of epoch {found.epoch}")
        self._is_proven = True
        return True

    def _has_no_id(self) -> bool:
        return not self._parts.view.has_id

    def _believe(self) -> bool:
        """Go on without a proof: the first chunk was compared before the subscription, under its own id."""
        log.warning("stream %r: the client uses all subscription ids, so the broker cannot be asked", self._stream)
        self._is_proven = True
        return True

    async def _archived(self, offset: Offset) -> ArchivedHeader | None:
        """Return the chunk that was archived at an offset. Raises IncarnationError if another incarnation was since."""
        vhost = self._parts.broker.vhost
        archived = await self._parts.history.header_at(vhost, self._stream, offset)
        bounds = await self._parts.history.bounds(vhost, self._stream, fresh=True)
        if bounds is None or bounds.incarnation != self._start.incarnation:
            raise self._error("another incarnation is archived now")
        return archived

    def _error(self, problem: str) -> IncarnationError:
        return IncarnationError(
            f"stream {self._stream!r} at the broker is not incarnation {self._start.incarnation}, which is archived:"
            f" {problem}"
        )
