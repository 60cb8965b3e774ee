"""Follow one stream without end: the archive to its tail, then live, and the archive again if retention was faster.

Reading goes back and forth between two logs that nobody keeps in step, so each takeover is proven by data alone:

    start.py      finds the position, and reads the archive from there
    live.py       attaches at the last chunk that was read, and goes on only if the broker has that very chunk
    catchup.py    reads the archive when the broker no longer has what is expected, until the broker has it
    position.py   is what they hand over: the offset that is expected, and the chunk before it

One task does all of it, one step after another, so that the position needs no lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NoReturn

from coldstream.consumer.batch import Give, ReachedOffset
from coldstream.consumer.brokerlog import BrokerLog
from coldstream.consumer.catchup import ARCHIVE_WAIT_S, CatchUp
from coldstream.consumer.live import LiveReader
from coldstream.consumer.ports import ArchiveSource, BrokerSource
from coldstream.consumer.position import ReadPosition
from coldstream.consumer.start import StartFinder
from coldstream.errors import StreamNotFoundError, UnavailableError
from coldstream.manifest.spec import OffsetSpec
from coldstream.manifest.stream import Incarnation


class StreamFollower:
    """Gives a stream's chunks from `start` on, each once and in order.

    `give` returns once there is room for more. With `reference`, an offset stored under it at the broker, that of the
    last message handled, comes before `start`. `archive_wait_s` bounds how long offsets may be neither at the broker
    nor archived, and how long the resolver may be away. The broker may be away for ever.

    With `fixes_start`, a start time becomes an offset before anything is given, even if the broker alone knows which.
    With `incarnation`, no other is read. `on_away` is called whenever the broker has to be waited for.
    """

    def __init__(
        self,
        stream: str,
        start: OffsetSpec,
        *,
        broker: BrokerSource,
        archive: ArchiveSource,
        give: Give,
        reference: str | None = None,
        on_gap: Literal["raise", "skip"] = "raise",
        archive_wait_s: float = ARCHIVE_WAIT_S,
        incarnation: Incarnation | None = None,
        fixes_start: bool = False,
        on_away: Callable[[], None] | None = None,
    ) -> None:
        self._position = ReadPosition(stream, start, incarnation=incarnation)
        self._give = give
        self._fixes_start = fixes_start
        self._broker = BrokerLog(stream, broker, on_away)
        self._catch_up = CatchUp(
            self._position, self._broker, archive, give, on_gap=on_gap, archive_wait_s=archive_wait_s
        )
        self._start = StartFinder(self._position, self._broker, archive, self._catch_up, reference=reference)
        self._live = LiveReader(self._position, self._broker, archive, give, archive_wait_s=archive_wait_s)

    async def run(self) -> NoReturn:
        """Follow until cancelled.

        Raises GapError, IncarnationError, StreamNotFoundError, AccessDeniedError, CorruptionError; UnavailableError
        after `archive_wait_s`.
        """
        await self._start.find()
        await self._tell_start()
        while True:
            await self._read_on()

    async def _tell_start(self) -> None:
        """Say up to where nothing is left to give, now that the archive is read to its tail."""
        if self._fixes_start:
            await self._start.fix_time()
        expected = self._position.expected
        # Where it is None, live reading attaches by the spec: at the log's beginning, or at an offset.
        await self._give(ReachedOffset(self._position.stream, expected or self._position.from_offset, at_tail=True))

    async def _read_on(self) -> None:
        """Read live until that ends, and do what has to come before the next attempt."""
        try:
            await self._live.read()
        except StreamNotFoundError:
            # A deleted stream may be archived up to its end. Only when nothing is left there has it been read.
            before = self._position.expected
            await self._catch_up.run(must_move=False)
            if self._position.expected == before:
                raise
        except UnavailableError as err:
            await self._broker.pause(err)
            if self._position.expected is None:
                await self._start.find_again()
                await self._tell_start()
        else:
            await self._catch_up.run(must_move=True)
