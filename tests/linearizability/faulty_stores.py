"""The table and the bucket as one process of a simulation sees them: far away, and not always answering.

A request has its effect on the way, and its answer comes later; both take simulated time. It may be refused. Its
answer may be lost, and then its effect may be long before, or long after, that is noticed. S3's client may have sent a
PUT twice, since it heard nothing of the first. Whether its process lives on does not matter to what is on its way.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO

from coldstream.errors import ColdstreamError, OutcomeUnknownError, UnavailableError
from tests.linearizability.virtual_loop import Life, Process, VirtualLoop
from tests.linearizability.virtual_threads import Killed, VirtualThread, current_thread

READS = frozenset({
    "head", "log_from_offset", "log_from_timestamp", "log_end", "log_at_once", "items_at_once", "log_before", "gap",
    "gaps", "gaps_before", "missing", "missing_before", "missing_after", "quarantine", "tombstones", "journal",
    "recorded_changes", "holds", "erasures", "rows", "incarnation_of", "bound_cluster", "streams", "grants", "policies",
    "cursor", "state_item", "state_items", "get_range", "get_whole", "open_range", "info", "keys", "listing",
})  # fmt: skip
LOCAL = frozenset({"presign_get"})
GIVEN_UP_S = 5.0
"""After so long without an answer a caller is told that there is none."""


@dataclass(slots=True)
class Weather:
    """How the services are now. Rates are probabilities of one request."""

    refused: float = 0.0
    lost: float = 0.0
    sent_twice: float = 0.0
    slow: float = 0.0
    is_out: bool = False

    def clear(self) -> None:
        """Nothing fails from now on."""
        self.refused = self.lost = self.sent_twice = self.slow = 0.0
        self.is_out = False


@dataclass(slots=True)
class _Answer:
    result: Any = None
    error: BaseException | None = None


class Network:
    """What lies between all processes and the services. Its seed decides what becomes of each request."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self.weather = Weather()
        self.counts: Counter[str] = Counter()
        self._loop = loop
        self._random = random.Random(seed)

    def request(self, process: Process, name: str, call: Callable[[], Any], *, twice: bool = False) -> Any:
        """Make a request of a process, and wait for its answer. Only a thread may: it blocks."""
        thread = current_thread()
        if thread is None:
            raise RuntimeError(f"{name} blocks the event loop")
        if process.life in {Life.DEAD, Life.BURIED}:
            raise Killed
        self.counts[name] += 1
        lost = UnavailableError if name in READS else OutcomeUnknownError
        draw, weather = self._random.random, self.weather
        mean_s = 0.03 if twice or name in {"get_range", "get_whole", "open_range", "listing", "keys"} else 0.008
        there_s, back_s = (self._random.expovariate(1 / mean_s) for _ in range(2))
        if draw() < weather.slow:
            self.counts["slow"] += 1
            there_s += self._random.uniform(0, GIVEN_UP_S)
        if weather.is_out or draw() < weather.refused:
            self.counts["outage" if weather.is_out else "refused"] += 1
            return self._wait(thread, there_s + back_s, _Answer(error=UnavailableError(f"{name}: SlowDown")))
        answer = _Answer()
        if draw() < weather.lost:
            arrives_s = self._random.choice((there_s, there_s, self._random.uniform(0, 60), None))
            if arrives_s is not None:
                kind = "transaction" if name == "apply" else "PUT" if twice else "other"
                self.counts[f"lost answer of {kind}{', which came late' if arrives_s > GIVEN_UP_S else ''}"] += 1
                self._loop.outside(arrives_s, lambda: self._carry_out(process, call, _Answer()))
            else:
                self.counts["lost request"] += 1
            error = lost(f"{name}: no answer came")
            return self._wait(thread, self._random.uniform(there_s, GIVEN_UP_S), _Answer(error=error))
        if twice and draw() < weather.sent_twice:
            self.counts["PUT sent twice"] += 1
            self._loop.outside(there_s, lambda: self._carry_out(process, call, _Answer()))
            there_s += self._random.uniform(0.1, 2)
        self._loop.outside(there_s, lambda: self._carry_out(process, call, answer))
        return self._wait(thread, there_s + back_s, answer)

    def cuts_listing(self) -> bool:
        """Tell whether a listing comes by two pages."""
        is_cut = self._random.random() < 0.3
        self.counts["listing by pages"] += is_cut
        return is_cut

    def _carry_out(self, process: Process, call: Callable[[], Any], answer: _Answer) -> None:
        # What a killed process had begun to send may not have left it.
        if process.life is not Life.RUNS and process.life is not Life.FROZEN:
            if self._random.random() < 0.4:
                return
            self.counts["request of a dead process arrived"] += 1
        try:
            answer.result = call()
        except ColdstreamError as err:
            answer.error = err

    def _wait(self, thread: VirtualThread, seconds: float, answer: _Answer) -> Any:
        self._loop.call_later(seconds, thread.turn, context=thread.context)
        thread.wait()
        if answer.error is not None:
            raise answer.error
        return answer.result


class Remote:
    """A table or a bucket in memory, of which every method is a request of `process`."""

    def __init__(self, network: Network, process: Process, target: Any) -> None:
        self._network = network
        self._process = process
        self._target = target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if not callable(found) or name in LOCAL:
            return found

        def method(*args: Any, **options: Any) -> Any:
            def call() -> Any:
                result = found(*args, **options)
                return list(result) if isinstance(result, Iterator) else result

            result = self._network.request(self._process, name, call)
            return iter(result) if isinstance(result, list) else result

        return method

    def keys(self, prefix: str) -> Iterator[str]:
        """List keys, at times by two pages, which are of different moments."""

        def page() -> list[str]:
            return list(self._target.keys(prefix))

        first: list[str] = self._network.request(self._process, "keys", page)
        if len(first) < 2 or not self._network.cuts_listing():
            return iter(first)
        cut = first[len(first) // 2]
        second = self._network.request(self._process, "keys", page)
        return iter([key for key in first if key < cut] + [key for key in second if key >= cut])

    def put_new(self, key: str, body: BinaryIO, **options: Any) -> None:
        """Write an object: one that arrives late has the bytes that were there when it was sent."""
        body.seek(0)
        data = body.read()
        self._network.request(
            self._process, "put_new", lambda: self._target.put_new(key, BytesIO(data), **options), twice=True
        )
