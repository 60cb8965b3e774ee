"""How far one stream has come: what of it is on this disk, what of that is proven, and what is archived.

Three tasks of a stream share this one value. `pinning` links new segments, `proof.proving` proves what is pinned, and
`stream_delivery` archives what is proven. Each reads all of it. Only the delivery moves `archived_to`, except that
giving up a pin moves it, too.
"""

from __future__ import annotations

import asyncio

from coldstream.agent.disk.disk_access import DiskAccess
from coldstream.agent.disk.stream_disk import DiskLook
from coldstream.agent.proof.identity import StreamIdentity
from coldstream.agent.stream_state import StreamState
from coldstream.units import Offset


class ArchivingProgress:
    """The progress of one incarnation.

    Offsets below `archived_to` are archived, or known to be missing. It is 0, and says nothing, until `has_begun`: then
    the manifest has been asked. `pinned` is set after each look at the disk, and `changed` whenever there may be more
    to archive. Only `go_back` takes `archived_to` back, for a while. `is_quiet` says that nothing is to be done until
    files change: everything that can be archived is, nothing has failed, and no loss is suspected or to be announced.
    `quiet_look` is then the last look at the disk if another one would find the same, as of the last check.
    """

    def __init__(self, identity: StreamIdentity, disk: DiskAccess) -> None:
        self.identity = identity
        self.disk = disk
        self.state = StreamState.STARTING
        self.archived_to = Offset(0)
        self.has_begun = False
        self.is_quiet = False
        self.quiet_look: DiskLook | None = None
        self.pinned = asyncio.Event()
        self.changed = asyncio.Event()

    @property
    def is_live(self) -> bool:
        """Whether the broker has files of the stream here. Raises UnavailableError when that cannot be told."""
        return self.disk.disk.pins.is_live

    def check_quiet(self) -> bool:
        """Return False if the files of a quiet stream are not as they were at the last look.

        The stats are made here, in the event loop: a thread for them would cost a hundred times as much.
        """
        if not self.is_quiet:
            return True
        self.quiet_look = self.disk.disk.unchanged_look(self.archived_to, self.identity.committed_to)
        return self.quiet_look is not None

    def record(self, archived_to: Offset) -> None:
        """Record how far the archive reaches; this never takes it back, whichever task is late."""
        self.archived_to = max(archived_to, self.archived_to)
        self.has_begun = True

    async def advance(self, archived_to: Offset) -> None:
        """Record how far the archive reaches, and release the pins that it covers."""
        # Before the look, which releases pins by what is recorded when its turn comes.
        self.record(archived_to)
        await self.look()
        self.changed.set()

    async def go_back(self, archived_to: Offset) -> None:
        """Have offsets archived again from `archived_to` on; `advance` to the former offset ends it."""
        self.archived_to = archived_to
        await self.disk.call(self.disk.disk.forget_walks)
        await self.look()

    async def look(self) -> None:
        """Pin what is new on the disk, and release what is archived."""
        disk = self.disk.disk
        # The offsets are read when the turn has come, because other tasks move them while this waits. By an older
        # `committed_to`, a pin with committed chunks would make room for a shorter file of a replica that is only
        # beginning; by an older `archived_to`, released segments would be linked again.
        await self.disk.call(lambda: disk.look(self.archived_to, self.identity.committed_to))
