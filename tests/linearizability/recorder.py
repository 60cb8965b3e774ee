"""`Recorder`: what is called on one direct stream, by whatever process, and what came of it: one history.

It also holds what needs no search against what is read: no two batches are at one offset, no batch is there twice,
acknowledgements of a handle come in order; and at the end, all that was acknowledged is there, and nothing that was
refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from coldstream.errors import (
    ColdstreamError,
    ExpiredEpochError,
    OutcomeUnknownError,
    StreamClosedError,
    UnavailableError,
    UnexpectedTailError,
)
from coldstream.streams.handle import DirectStream
from coldstream.units import Offset
from tests.linearizability.history import Call, History, Value, batch_digest, stream_digest
from tests.linearizability.virtual_loop import current_process

FENCED = (ExpiredEpochError, StreamClosedError)
"""An append that fails with these is not in the stream, and never will be; nor does the handle append anything more."""

UNKNOWN = (OutcomeUnknownError, UnavailableError)


class PlayError(AssertionError):
    """The shipped code did what is wrong in any history."""


@dataclass(slots=True)
class Opened:
    """A handle that was opened to append, its number in the history, and why it appends no more."""

    handle: DirectStream
    number: int
    client: int
    last_base: int = -1
    failure: ColdstreamError | None = None


@dataclass(slots=True)
class NumberingPublisher:
    """An application that numbers its batches, and sends again what it heard nothing of, whoever may have died."""

    number: int
    last: int = 0
    unconfirmed: list[tuple[int, Sequence[bytes]]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"publisher {self.number}"

    def next(self, messages: Sequence[bytes]) -> tuple[int, Sequence[bytes]]:
        """Number a batch."""
        self.last += 1
        self.unconfirmed.append((self.last, messages))
        return self.unconfirmed[-1]


class Recorder:
    """The calls on one stream. `at` gives the time of an event, which grows; `counts` counts what came of calls."""

    def __init__(self, name: str, history: History, at: Callable[[], int], counts: Counter[str]) -> None:
        self.name = name
        self.history = history
        self.trimmed_to = 0
        self._at = at
        self._counts = counts
        self._batches: dict[int, tuple[int, str]] = {}
        self._bases: dict[str, int] = {}
        self._acknowledged: dict[int, str] = {}
        self._refused: set[str] = set()
        self._handles = 0

    async def open(self, client: int, opening: Awaitable[DirectStream]) -> Opened | None:
        """Open the stream to append; None if that failed as it may."""
        self._handles += 1
        number = self._handles
        call = self.history.call(client=client, kind="open", handle=number, at=self._at())
        try:
            handle = await opening
        except (ExpiredEpochError, *UNKNOWN):
            self._counts["open unknown"] += 1
            return None  # what it did up to there it did
        except ColdstreamError as err:
            raise PlayError(f"opening {self.name} raised {err!r}") from err
        call.returns(at=self._at(), epoch=handle.epoch)
        self._counts["open"] += 1
        return Opened(handle, number, client)

    async def append(
        self,
        opened: Opened,
        messages: Sequence[bytes],
        *,
        expect: Offset | None = None,
        publisher: NumberingPublisher | None = None,
        publishing_id: int | None = None,
    ) -> None:
        """Append a batch, of which a publisher's may be one that was sent before."""
        digest = batch_digest(messages)
        facts: dict[str, Value] = (
            {} if publisher is None else {"publisher": publisher.number, "publishing": publishing_id}
        )
        call = self.history.call(
            client=opened.client,
            kind="append",
            handle=opened.number,
            at=self._at(),
            messages=len(messages),
            batch=digest,
            expect=expect,
            **facts,
        )
        try:
            base = await opened.handle.append(
                messages,
                expect=expect,
                publisher=None if publisher is None else publisher.name,
                publishing_id=publishing_id,
            )
        except UnexpectedTailError:
            self._refuse(call, digest, publisher, "append: another tail than expected")
        except FENCED as err:
            opened.failure = opened.failure or err
            is_expired = isinstance(err, ExpiredEpochError)
            process = current_process()
            if is_expired and process is not None and process.has_been_frozen:
                self._counts["zombie refused"] += 1
            self._refuse(call, digest, publisher, "append refused" + ": another opened it" * is_expired)
        except UNKNOWN as err:
            opened.failure = opened.failure or err
            self._counts["append unknown"] += 1
        except ColdstreamError as err:
            raise PlayError(f"an append raised {err!r}") from err
        else:
            self._acknowledge(opened, call, digest, base, publisher, publishing_id)

    def _refuse(self, call: Call, digest: str, publisher: NumberingPublisher | None, what: str) -> None:
        self._counts[what] += 1
        call.returns(at=self._at(), outcome="refused")
        if publisher is None:
            self._refused.add(digest)

    def _acknowledge(  # noqa: PLR0917  what there is to know of it
        self,
        opened: Opened,
        call: Call,
        digest: str,
        base: Offset | None,
        publisher: NumberingPublisher | None,
        publishing_id: int | None,
    ) -> None:
        if publisher is not None:
            publisher.unconfirmed = [one for one in publisher.unconfirmed if one[0] != publishing_id]
        if base is None:
            if publisher is None:
                raise PlayError("an append without a publisher was taken for one that was made before")
            self._counts["append duplicate"] += 1
            call.returns(at=self._at(), outcome="duplicate")
            return
        self._counts["append acknowledged"] += 1
        call.returns(at=self._at(), base=base, epoch=opened.handle.epoch)
        if base <= opened.last_base:
            raise PlayError(f"offset {base} was acknowledged after {opened.last_base}, by the same handle")
        opened.last_base = base
        self._acknowledged[base] = digest

    async def read(self, handle: DirectStream, client: int, number: int, max_bytes: Callable[[], int]) -> bool:
        """Read all that a handle has, and return whether that went well; `number` is 0 for a snapshot."""
        call = self.history.call(client=client, kind="read", handle=number, at=self._at())
        return await self.read_for(call, handle, max_bytes)

    async def read_for(self, call: Call, handle: DirectStream, max_bytes: Callable[[], int]) -> bool:
        """Read all that a handle has, as a call that has begun."""
        end, at = handle.confirmed, handle.start
        found: list[tuple[int, str]] = []
        try:
            while batches := await handle.fetch(at, end, max_bytes=max_bytes()):
                for one in batches:
                    digest = batch_digest([bytes(message.body) for message in one.messages()])
                    found.append((one.base_offset, digest))
                    self._learn(one.base_offset, one.next_offset, digest)
                    at = one.next_offset
        except (StreamClosedError, *UNKNOWN):
            self._counts["read failed"] += 1
            return False
        except ColdstreamError as err:
            if at < self.trimmed_to:
                self._counts["read of what was trimmed"] += 1
                return False
            raise PlayError(f"a read of {at} to {end} raised {err!r}") from err
        first = min(found[0][0] if found else end, handle.start)
        # Whoever trimmed has read it all before.
        below = sorted((base, digest) for base, (_, digest) in self._batches.items() if base < first)
        self._counts["read"] += 1
        call.returns(at=self._at(), tail=end, digest=stream_digest([*below, *found], gaps=self.history.gaps))
        return True

    def tail(self, opened: Opened) -> None:
        """Look at the tail."""
        call = self.history.call(client=opened.client, kind="tail", handle=opened.number, at=self._at())
        call.returns(at=self._at(), tail=opened.handle.confirmed)

    def boundary_below(self, offset: int) -> int:
        """Return the greatest offset up to `offset` at which a batch is known to end; 0 if there is none."""
        return max((end for end, _ in self._batches.values() if end <= offset), default=0)

    def _learn(self, base: int, next_offset: int, digest: str) -> None:
        known = self._batches.setdefault(base, (next_offset, digest))
        if known != (next_offset, digest):
            raise PlayError(f"at offset {base} of {self.name} there was another batch before")
        if self._bases.setdefault(digest, base) != base:
            raise PlayError(f"a batch of {self.name} is at {self._bases[digest]} and at {base}")

    def judge(self) -> None:
        """Raise PlayError if something acknowledged is missing or something refused is there; the end has been read."""
        for base, digest in self._acknowledged.items():
            if self._batches.get(base, (0, ""))[1] != digest:
                raise PlayError(f"the batch that was acknowledged at {base} of {self.name} is not there")
        for digest in self._refused & self._bases.keys():
            raise PlayError(f"a batch that was refused is at {self._bases[digest]} of {self.name}")

    def finished(self, taken: Sequence[tuple[int, int, int]]) -> History:
        """Return the history without what nobody noticed: that makes the search long, and makes nothing legal.

        An append that was refused changes nothing: if it is read all the same, it comes from nowhere. One of unknown
        outcome that no read ever showed, the last one included, is left out: nothing that comes later depends on it.
        `taken` are the epochs that were taken: when, by which client, and the epoch. An opening that failed counts as
        one if it took an epoch, between then and the next opening that did not fail; of several, the first is enough.
        """
        calls = self.history.calls
        given = sorted(
            ((_number(one, "epoch"), one) for one in calls if one.facts["kind"] == "open" and not one.is_unknown),
            key=lambda one: one[0],
        )
        kept = [call for call in calls if call.facts["outcome"] != "refused" and not self._is_unnoticed(call)]
        fenced: set[int] = set()
        for at, client, epoch in sorted(taken, key=lambda one: one[2]):
            call = self._failed_opening(client, at)
            following = next((index for index, (one, _) in enumerate(given) if one >= epoch), None)
            if call is None or following is None or given[following][0] == epoch or following in fenced:
                continue
            fenced.add(following)
            ends = _number(given[following][1], "return")
            made = Call({**call.facts, "call": at})
            made.returns(at=ends, epoch=epoch)
            kept.append(made)
        self.history.calls = kept
        return self.history

    def _is_unnoticed(self, call: Call) -> bool:
        kind = call.facts["kind"]
        return call.is_unknown and (kind == "open" or (kind == "append" and call.facts["batch"] not in self._bases))

    def _failed_opening(self, client: int, at: int) -> Call | None:
        """Return the opening that a client was about at a time, if it failed."""
        openings = [one for one in self.history.calls if one.facts["kind"] == "open" and one.facts["client"] == client]
        last = max((one for one in openings if one.time < at), key=lambda one: one.time, default=None)
        return last if last is not None and last.is_unknown else None


def _number(call: Call, fact: str) -> int:
    value = call.facts[fact]
    assert isinstance(value, int)
    return value
