"""Which stream a directory is: a search for its names, which has to end at exactly one stream.

Many streams may share what a directory's name says of theirs, and they may share chunks as well: an exchange that fans
out puts the same messages into `orders.eu` and `orders_eu` in the same millisecond. So the search asks the broker for
every stream that the directory may be, and compares the result with every other directory here that is written alike.
As long as two streams, or two directories, cannot be told apart, the directory is not named: it is pinned, and the
search asks again by other chunks, until they differ.

The streams that the directory may be are those that the management API lists. The list is fetched after the directory's
first chunk was read, so a stream that was declared meanwhile is on it. Without that API they are guesses, one vhost
after another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from coldstream.agent.proof.broker import BrokerProver, Log, Proof, ProofVerdict, prove
from coldstream.agent.proof.names import candidates, guess_names
from coldstream.agent.proof.namesakes import Namesake, Namesakes
from coldstream.agent.proof.stream_listing import StreamListing
from coldstream.agent.rules import Rules
from coldstream.agent.stream_state import StreamState
from coldstream.errors import BrokerRefusedError, LoginRefusedError, NotFoundError, VhostRefusedError
from coldstream.format.chunk import ChunkHeader
from coldstream.live.delivered import is_same
from coldstream.manifest.stream import Incarnation, StreamId

log = logging.getLogger(__name__)


DELETED = "deleted at the broker before its names were known; what is pinned here is kept, and not archived"
UNLISTED = "the management API lists no stream that it may be; its user sees vhosts alone in which it has permissions"
FIRST_PAUSE_S = 0.25


class NamedDirectory(Namesake, Log, Protocol):
    """A directory whose names are searched for."""

    @property
    def incarnation(self) -> Incarnation:
        """The directory's name."""
        ...

    async def user_chunks(self, turn: int) -> tuple[ChunkHeader, ChunkHeader] | None:
        """Return the first user chunk and another one, a different one in each turn; None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class FoundNames:
    """The one stream that the directory is. `proof` is of its user chunk `first`, if that chunk alone was enough."""

    stream: StreamId
    proof: Proof | None
    first: ChunkHeader


@dataclass(frozen=True, slots=True)
class NoNames:
    """The directory has no names yet: why, if there is more to say than its `state`.

    `is_open` says that a later search may find the stream, whether the broker still has the directory or not.
    """

    why: str | None = None
    is_open: bool = False
    state: StreamState = StreamState.UNNAMED


@dataclass(slots=True)
class _Answers:
    """What the broker says of the streams that the directory may be."""

    matches: list[tuple[StreamId, Proof | None]] = field(default_factory=list)
    unsure: list[StreamId] = field(default_factory=list)
    refused: list[BrokerRefusedError] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.matches or self.unsure)


class NameSearch:
    """Searches for the names of one directory, again and again. `why` says what the last search lacked."""

    def __init__(
        self, directory: NamedDirectory, broker: BrokerProver, naming: StreamListing, rules: Rules, namesakes: Namesakes
    ) -> None:
        self.why: str | None = None
        self._directory = directory
        self._incarnation = directory.incarnation
        self._broker = broker
        self._naming = naming
        self._rules = rules
        self._namesakes = namesakes
        self._turn = 0
        # From the start: whoever searches for another directory's names has to leave room for this one.
        namesakes.join(self._incarnation, directory)

    def pause_s(self, longest_s: float) -> float:
        """Return how long to rest before the next search."""
        return min(longest_s, FIRST_PAUSE_S * 2.0 ** min(self._turn, 16))

    async def find(self) -> FoundNames | NoNames:
        """Search once. Raises what the broker and its management API do.

        That is BrokerRefusedError if one of the streams that it may be is refused; FileNotFoundError when a pin is
        released.
        """
        chunks = await self._directory.user_chunks(self._turn)
        self._turn += 1
        if chunks is None:
            return NoNames(state=StreamState.EMPTY if self._directory.is_live else StreamState.DELETED)
        found = await self._search(*chunks)
        if isinstance(found, FoundNames):
            self.why = None
            return found
        why = found.why
        if why is not None and not found.is_open and not self._directory.is_live:
            why = f"{DELETED}: {why}"
        if why not in {None, self.why}:
            log.log(logging.INFO if found.is_open else logging.ERROR, "%s has no names: %s", self._incarnation, why)
        self.why = why
        return found

    async def _search(self, first: ChunkHeader, another: ChunkHeader) -> FoundNames | NoNames:
        if not self._naming.is_available:
            return await self._search_guess_names(first, another)
        # A list from before the chunks were read may lack the stream that they are of.
        listed = await self._naming.known_since(asyncio.get_running_loop().time())
        streams = [StreamId(vhost, name, self._incarnation) for vhost, name in candidates(self._incarnation, listed)]
        if not streams:
            return NoNames(UNLISTED)
        if not any(self._rules.takes(stream.vhost, stream.name) for stream in streams):
            return NoNames(state=StreamState.EXCLUDED)
        answers = await self._ask(streams, first, another)
        if answers.refused:
            raise answers.refused[0]
        return await self._conclude(answers, first, another)

    async def _search_guess_names(self, first: ChunkHeader, another: ChunkHeader) -> FoundNames | NoNames:
        refused: list[BrokerRefusedError] = []
        for vhost, names in guess_names(self._incarnation).items():
            answers = await self._ask([StreamId(vhost, name, self._incarnation) for name in names], first, another)
            if answers:
                return await self._conclude(answers, first, another)
            # A vhost that is refused says only that it was a bad guess.
            refused += [err for err in answers.refused if not isinstance(err, VhostRefusedError)]
        if refused:
            raise refused[0]
        return NoNames("no guess at its names was right, and no management API is given to ask")

    async def _ask(self, streams: list[StreamId], first: ChunkHeader, another: ChunkHeader) -> _Answers:
        """Ask for each stream by the first chunk, and by another one if there are several streams or directories."""
        is_ambiguous = len(streams) > 1 or any(map(self._namesakes.of, streams))
        answers = _Answers()
        for stream in streams:
            try:
                proof = await prove(self._broker, stream, first, self._directory)
                verdict, is_enough = proof.verdict, not is_ambiguous or another == first
                if not is_enough and verdict is not ProofVerdict.ANOTHER:
                    further = await prove(self._broker, stream, another, self._directory)
                    verdict = verdict if further.verdict is ProofVerdict.DELETED else further.verdict
            except NotFoundError as err:
                log.debug("%s is not %s: %s", stream.incarnation, stream, err)
            except LoginRefusedError:
                # Refused for all streams alike, so it says nothing about this one.
                raise
            except BrokerRefusedError as err:
                log.debug("%s may be %s: %s", stream.incarnation, stream, err)
                answers.refused.append(err)
            else:
                if verdict in {ProofVerdict.COMMITTED, ProofVerdict.APART}:
                    answers.matches.append((stream, proof if is_enough else None))
                elif verdict is not ProofVerdict.ANOTHER:
                    answers.unsure.append(stream)
        return answers

    async def _conclude(self, answers: _Answers, first: ChunkHeader, another: ChunkHeader) -> FoundNames | NoNames:
        if not answers:
            return NoNames("the broker has another stream of its names")
        if not answers.matches:
            return NoNames(f"the broker does not deliver it yet: {_listed(answers.unsure)}", is_open=True)
        streams = [*(stream for stream, _ in answers.matches), *answers.unsure]
        if len(streams) > 1:
            return NoNames(f"it cannot be told yet which it is of: {_listed(streams)}", is_open=True)
        ((stream, proof),) = answers.matches
        if await asyncio.to_thread(self._namesakes.has_unseen, stream):
            return NoNames(f"another directory that {stream} may be is still to be looked at", is_open=True)
        # Asked last: a directory that the agent began to look at during the awaits above is among them.
        for other in self._namesakes.of(stream):
            rival = await self._rival(other, stream, another)
            if rival is not None:
                return rival
        return FoundNames(stream, proof, first)

    async def _rival(self, other: Namesake, stream: StreamId, another: ChunkHeader) -> NoNames | None:
        """Return why another directory keeps this one from being named by a stream; None if it does not."""
        if other.stream is not None and (other.stream.vhost, other.stream.name) != (stream.vhost, stream.name):
            return None
        if self._directory.is_live and not other.is_live:
            return None  # the broker has only this one, so it delivers from this one
        found = await other.find(another.chunk_id)
        if found is None or not is_same(found, another):
            return None
        if other.stream is not None and other.is_live:
            return NoNames(f"{stream} is another directory here, and the broker has no other that it may be")
        return NoNames(f"{stream} may be another directory here, which holds the same so far", is_open=True)


def _listed(streams: Iterable[StreamId]) -> str:
    return ", ".join(f"{stream.name!r} in vhost {stream.vhost!r}" for stream in streams)
