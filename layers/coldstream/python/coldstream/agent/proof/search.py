"""Which stream a directory is: the search for its names, which has to end at exactly one.

What a directory's name leaves of them many streams may share, and a chunk as well: an exchange that fans out puts the
same messages into `orders.eu` and `orders_eu` in the same millisecond. So every stream that it may be is asked for, and
every other directory here that is written alike is held against what was found. As long as two streams, or two
directories, cannot be told apart, it is not named: it is pinned, and asked for again by other chunks, until they
differ.

The streams that it may be are those that the management API lists, as of after its first chunk was seen: one that was
declared meanwhile is among them. Without that API they are guesses, one vhost after another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from coldstream.agent.proof.broker import BrokerProver, Log, Proof, Verdict, prove
from coldstream.agent.proof.names import candidates, guess_names
from coldstream.agent.proof.namesakes import Namesake, Namesakes
from coldstream.agent.proof.stream_listing import StreamListing
from coldstream.agent.rules import Rules
from coldstream.errors import BrokerRefusedError, LoginRefusedError, NotFoundError, VhostRefusedError
from coldstream.format.chunk import ChunkHeader
from coldstream.live.delivered import is_same
from coldstream.manifest.stream import Incarnation, StreamId

log = logging.getLogger(__name__)


DELETED = "deleted at the broker before its names were known; what is pinned here is kept, and not archived"
UNLISTED = "the management API lists no stream that it may be; its user sees vhosts alone in which it has permissions"
FIRST_PAUSE_S = 0.25


class Directory(Namesake, Log, Protocol):
    """A directory whose names are searched for."""

    @property
    def incarnation(self) -> Incarnation:
        """Its name."""
        ...

    async def user_chunks(self, turn: int) -> tuple[ChunkHeader, ChunkHeader] | None:
        """Return its first user chunk and another, in each turn another; None when it has none."""
        ...


@dataclass(frozen=True, slots=True)
class Names:
    """What a search came to: the stream, or the `state` of the directory and why it has no names.

    `proof` is of its first user chunk, where that one was enough. `is_open` says that a later search may find the
    stream, whether the broker still has the directory or not.
    """

    stream: StreamId | None = None
    proof: Proof | None = None
    first: ChunkHeader | None = None
    why: str | None = None
    is_open: bool = False
    state: str = "unnamed"


@dataclass(slots=True)
class _Answers:
    """What the broker says of the streams that it may be."""

    matches: list[tuple[StreamId, Proof | None]] = field(default_factory=list)
    unsure: list[StreamId] = field(default_factory=list)
    refused: list[BrokerRefusedError] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.matches or self.unsure)


class NameSearch:
    """Searches for the names of one directory, again and again. `why` says what the last search lacked."""

    def __init__(
        self, directory: Directory, broker: BrokerProver, naming: StreamListing, rules: Rules, namesakes: Namesakes
    ) -> None:
        self.why: str | None = None
        self._directory = directory
        self._life = directory.incarnation
        self._broker = broker
        self._naming = naming
        self._rules = rules
        self._namesakes = namesakes
        self._turn = 0
        namesakes.join(self._life, directory)

    def pause_s(self, longest_s: float) -> float:
        """Return how long to rest before the next search."""
        return min(longest_s, FIRST_PAUSE_S * 2.0 ** min(self._turn, 16))

    async def find(self) -> Names:
        """Search once. Raises what the broker and its management API do.

        Those are BrokerRefusedError where it may be a stream that is refused, FileNotFoundError when a pin is let go.
        """
        chunks = await self._directory.user_chunks(self._turn)
        self._turn += 1
        if chunks is None:
            return Names(state="empty" if self._directory.is_live else "deleted")
        found = await self._search(*chunks)
        why = found.why
        if why is not None and not found.is_open and not self._directory.is_live:
            why = f"{DELETED}: {why}"
        if why not in {None, self.why}:
            log.log(logging.INFO if found.is_open else logging.ERROR, "%s has no names: %s", self._life, why)
        self.why = why
        return found

    async def _search(self, first: ChunkHeader, another: ChunkHeader) -> Names:
        if not self._naming.is_available:
            return await self._among_guesses(first, another)
        listed = await self._naming.known_since(asyncio.get_running_loop().time())
        streams = [StreamId(vhost, name, self._life) for vhost, name in candidates(self._life, listed)]
        if not streams:
            return Names(why=UNLISTED)
        if not any(self._rules.takes(stream.vhost, stream.name) for stream in streams):
            return Names(state="excluded")
        answers = await self._ask(streams, first, another)
        if answers.refused:
            raise answers.refused[0]
        return await self._conclude(answers, first, another)

    async def _among_guesses(self, first: ChunkHeader, another: ChunkHeader) -> Names:
        refused: list[BrokerRefusedError] = []
        for vhost, names in guess_names(self._life).items():
            answers = await self._ask([StreamId(vhost, name, self._life) for name in names], first, another)
            if answers:
                return await self._conclude(answers, first, another)
            # That a vhost is refused says only that it was a bad guess.
            refused += [err for err in answers.refused if not isinstance(err, VhostRefusedError)]
        if refused:
            raise refused[0]
        return Names(why="no guess at its names was right, and no management API is given to ask")

    async def _ask(self, streams: list[StreamId], first: ChunkHeader, another: ChunkHeader) -> _Answers:
        """Ask for each stream by the first chunk, and where there is more than one directory or stream, by another."""
        is_contested = len(streams) > 1 or any(map(self._namesakes.of, streams))
        answers = _Answers()
        for stream in streams:
            try:
                proof = await prove(self._broker, stream, first, self._directory)
                verdict, is_enough = proof.verdict, not is_contested or another == first
                if not is_enough and verdict is not Verdict.ANOTHER:
                    further = await prove(self._broker, stream, another, self._directory)
                    verdict = verdict if further.verdict is Verdict.DELETED else further.verdict
            except NotFoundError as err:
                log.debug("%s is not %s: %s", stream.incarnation, stream, err)
            except LoginRefusedError:
                raise
            except BrokerRefusedError as err:
                log.debug("%s may be %s: %s", stream.incarnation, stream, err)
                answers.refused.append(err)
            else:
                if verdict in {Verdict.COMMITTED, Verdict.APART}:
                    answers.matches.append((stream, proof if is_enough else None))
                elif verdict is not Verdict.ANOTHER:
                    answers.unsure.append(stream)
        return answers

    async def _conclude(self, answers: _Answers, first: ChunkHeader, another: ChunkHeader) -> Names:
        if not answers:
            return Names(why="the broker has another stream of its names")
        if not answers.matches:
            return Names(why=f"the broker does not deliver it yet: {_listed(answers.unsure)}", is_open=True)
        streams = [*(stream for stream, _ in answers.matches), *answers.unsure]
        if len(streams) > 1:
            return Names(why=f"it cannot be told yet which it is of: {_listed(streams)}", is_open=True)
        ((stream, proof),) = answers.matches
        if await asyncio.to_thread(self._namesakes.has_unseen, stream):
            return Names(why=f"another directory that {stream} may be is still to be looked at", is_open=True)
        for other in self._namesakes.of(stream):
            rival = await self._rival(other, stream, another)
            if rival is not None:
                return rival
        return Names(stream, proof, first)

    async def _rival(self, other: Namesake, stream: StreamId, another: ChunkHeader) -> Names | None:
        """Tell why this is not to be named by a stream that another directory may be; None where that is not."""
        if other.stream is not None and (other.stream.vhost, other.stream.name) != (stream.vhost, stream.name):
            return None
        if self._directory.is_live and not other.is_live:
            return None  # the broker delivers what is in the one that it has
        found = await other.find(another.chunk_id)
        if found is None or not is_same(found, another):
            return None
        if other.stream is not None and other.is_live:
            return Names(why=f"{stream} is another directory here, and the broker has no other that it may be")
        return Names(why=f"{stream} may be another directory here, which holds the same so far", is_open=True)


def _listed(streams: Iterable[StreamId]) -> str:
    return ", ".join(f"{stream.name!r} in vhost {stream.vhost!r}" for stream in streams)
