"""What the gateway's log says of its clients' subscriptions, and whether that may be: its promises of docs/gateway.md.

A client learns of a gap by the end of its subscription, or not at all; the log says which offsets are missing, and why.
So what is passed by has to be in the log, and what the log says has to be so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from coldstream.errors import (
    ColdstreamError,
    GapError,
    IncarnationError,
    StreamNotFoundError,
    UnavailableError,
)
from coldstream.gateway.takeover import plan, proof, serving, settling, subscription, takeover
from coldstream.manifest.state import ManifestState
from coldstream.resolve.attach import REMOVED
from coldstream.units import Offset
from tests.simulation.cluster import Written
from tests.simulation.erased import ErasedMessages
from tests.simulation.watched import WatchedTable

LATELY_S = 15.0
"""What the gateway says may be as old as this: answers are kept for two seconds, and a request may take some."""

NEVER_CAME = "the broker has deleted them, and no agent has archived them in time"


@dataclass
class ToldSubscription:
    """What was said of one subscription since it began. `passed` are the offsets that it may lack."""

    began_at: float
    moved_at: float
    passed: list[range] = field(default_factory=list)


class Promises:
    """What is known of all subscriptions. `wait_s` is how long the gateway waits for what is not archived yet."""

    def __init__(self, table: WatchedTable, erased: ErasedMessages, wait_s: float, *, may_lose: bool) -> None:
        self.told: dict[int, ToldSubscription] = {}
        self.problems: list[str] = []
        self.ends: dict[str, int] = {}
        self._table = table
        self._erased = erased
        self._wait_s = wait_s
        self._may_lose = may_lose

    def begin(self, number: int) -> None:
        """Begin a subscription."""
        now = asyncio.get_running_loop().time()
        self.told[number] = ToldSubscription(now, now)

    def moved(self, number: int) -> None:
        """Note that a subscription is sent something."""
        self.told[number].moved_at = asyncio.get_running_loop().time()

    def same_bytes(self, confirmed: Written, given: bytes, told: str) -> None:
        """Hold a chunk against the confirmed one."""
        problem = self._erased.problem_of(confirmed, given)
        assert not problem, f"{told} {problem}"

    def problem_of(self, number: int, chunks: list[Written], began_at: Offset | None, *, is_first: bool) -> str:
        """Say why a subscription may not pass these chunks by; "" if it may.

        `began_at` is where its node's log began as it subscribed.
        """
        one = self.told[number]
        for chunk in chunks:
            offset = chunk.header.chunk_id
            if any(offset in span for span in one.passed) or offset < self._floor():
                continue
            if not is_first:
                return "nobody said so"
            if began_at is not None and offset >= began_at:
                return f"its node had all from {began_at} on"
            if self._was_archived(offset, one.began_at - LATELY_S):
                return "it was archived"
        return ""

    def gap(self, number: int, gap: GapError) -> None:
        """Take what is said of a gap."""
        problem = self._problem_of_gap(number, gap)
        if problem:
            self.problems.append(f"subscription {number} is told of {gap}, and {problem}")

    def lost(self, number: int, first_offset: int, next_offset: int) -> None:
        """Take what is said of a loss of a stream that is not archived."""
        self.told[number].passed.append(range(first_offset, next_offset))
        if all(state.head is not None and self._has_log(state) for state in self._lately(LATELY_S)):
            self.problems.append(f"subscription {number} passes {first_offset} by, and the stream is archived")

    def end(self, number: int, error: Any) -> None:
        """Take what is said of the end of a subscription."""
        self.ends[type(error).__name__] = self.ends.get(type(error).__name__, 0) + 1
        match error:
            case GapError():
                self.gap(number, error)
            case UnavailableError():
                pass
            case StreamNotFoundError() if self._was_deleted():
                pass
            case IncarnationError() if "does not have all that was archived" in str(error) or self._was_deleted():
                pass
            case _:
                self.problems.append(f"subscription {number} ends: {error!r}")

    def _problem_of_gap(self, number: int, gap: GapError) -> str:
        one = self.told[number]
        one.passed.append(range(gap.first_offset, gap.next_offset))
        states = self._lately(LATELY_S)
        for offset in range(gap.first_offset, gap.next_offset):
            if all(_has(state, offset) for state in states):
                return f"{offset} is archived"
        if gap.reason is None or gap.reason == NEVER_CAME:
            waited_s = asyncio.get_running_loop().time() - one.moved_at
            return "" if waited_s >= self._wait_s else f"{waited_s:.1f} s were waited for it"
        if gap.reason == REMOVED:
            return "" if gap.first_offset < self._floor() else f"nothing was removed from {self._floor()} on"
        if not self._may_lose:
            return "nothing may be lost"
        known = [record for state in states for record in state.missing.values()]
        is_known = any(
            record.first_offset < gap.next_offset and gap.first_offset < record.next_offset for record in known
        )
        return "" if is_known else "nobody recorded it"

    def _floor(self) -> int:
        head = self._table.state.head
        return 0 if head is None else head.floor

    def _lately(self, seconds: float) -> list[ManifestState]:
        return self._table.states_since(asyncio.get_running_loop().time() - seconds)

    def _was_archived(self, offset: int, since: float) -> bool:
        return all(_has(state, offset) for state in self._table.states_since(since))

    def _was_deleted(self) -> bool:
        return self._table.was_deleted_since(asyncio.get_running_loop().time() - LATELY_S)

    def _has_log(self, state: ManifestState) -> bool:
        return state.head is not None and state.head.next_offset is not None and not state.head.is_deleted


def _has(state: ManifestState, offset: int) -> bool:
    if state.head is None or state.head.is_deleted:
        return False
    return any(entry.first_offset <= offset < entry.next_offset for entry in state.entries.values())


class GatewayLog:
    """In place of the loggers of the take-over."""

    def __init__(self, promises: Promises) -> None:
        self._promises = promises

    def info(self, text: str, *arguments: Any) -> None:
        """Pass on nothing that no client sends."""
        if "as it is" in text:
            self._promises.problems.append(text % arguments)

    def warning(self, text: str, *arguments: Any) -> None:
        """Take what is said of gaps."""
        match arguments:
            case (int(number), int(), GapError() as gap) if "goes on at offset" in text:
                self._promises.gap(number, gap)
            case (int(number), int(), str(), int(first), int(last)) if "has lost offsets" in text:
                self._promises.lost(number, first, last + 1)
            case _ if "another incarnation" in text:
                self._promises.problems.append(text % arguments)

    def error(self, text: str, *arguments: Any) -> None:
        """Take what ends a subscription."""
        number, _, error = arguments
        assert isinstance(error, ColdstreamError), text
        self._promises.end(number, error)

    def exception(self, text: str, *arguments: Any) -> None:
        """Take an error of the program."""
        self._promises.problems.append(f"an error of the program: {text % arguments}")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Be what the take-over writes to."""
        with (
            patch.object(takeover, "log", self),
            patch.object(serving, "log", self),
            patch.object(settling, "log", self),
            patch.object(subscription, "log", self),
            patch.object(plan, "log", self),
            patch.object(proof, "log", self),
        ):
            yield
