"""Runs of a client on ways to a broker, and the table that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.gateway_process import RelayProcess
from bench.gateway_world import WrittenStream
from bench.harness import Aim, Cell, ChildRun, in_child, in_turns

GIB = 1 << 30
ROUNDS = 5
CREDIT = {500: 10, 1: 1_000}
"""What a consumer gives at first, by the messages of a chunk; then as much as was delivered."""
DIRECT, BYTES_ALONE, GATEWAY = "direct", "relay of bytes", "gateway"


@dataclass(frozen=True, slots=True)
class RelayedRun:
    """A client's run, and the CPU seconds that the relay in front of the broker used for it."""

    child: ChildRun
    relay_cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Way:
    """A way to a broker: its port, and the relay that it leads through."""

    port: int
    relay: RelayProcess | None = None

    def call(self, function: str, **arguments: Any) -> RelayedRun:
        """Run a client on this way."""
        before = self.relay.cpu_s if self.relay else 0.0
        child = in_child(f"bench.stream_client:{function}", {"port": self.port, **arguments})
        return RelayedRun(child, self.relay.cpu_s - before if self.relay else 0.0)

    def read(self, stream: WrittenStream, *, with_crc: bool = False) -> RelayedRun:
        """Read all of a stream's chunks."""
        credit = CREDIT[stream.messages_a_chunk]
        return self.call("read", stream=stream.name, chunks=stream.chunks, credit=credit, with_crc=with_crc)


Ways = Mapping[str, Way]


class GatewayTable:
    """The rows of the section, and its aims."""

    def __init__(self) -> None:
        self.rows: list[tuple[Cell, ...]] = []
        self.aims: list[Aim] = []
        self.notes: list[str] = []

    def rates(self, what: str, unit: str, runs: Mapping[str, list[RelayedRun]], counted: str, scale: float) -> float:
        """Add a row of rates; return the gateway's ratio."""
        best = {way: best_run(found) for way, found in runs.items()}
        rates = {way: run.child.answer[counted] / run.child.seconds / scale for way, run in best.items()}
        ours = best[GATEWAY]
        per_gib = ours.relay_cpu_s / ours.child.answer["bytes"] * GIB
        ratio: float = rates[GATEWAY] / rates[DIRECT]
        relayed: Cell = rates[BYTES_ALONE] / rates[DIRECT] if BYTES_ALONE in rates else ""
        self.rows.append((what, unit, rates[DIRECT], rates[GATEWAY], ratio, relayed, per_gib))
        pairs = [
            theirs.child.seconds / mine.child.seconds for mine, theirs in zip(runs[GATEWAY], runs[DIRECT], strict=False)
        ]
        self.notes.append(f"{what}, round by round: {min(pairs):.2f} to {max(pairs):.2f} of direct")
        return ratio

    def aim(self, text: str, result: float, least: float) -> None:
        """Add an aim of a ratio."""
        self.aims.append(Aim(text, f"{result:.2f}x", result >= least))


def best_run(runs: list[RelayedRun]) -> RelayedRun:
    """Return the shortest run."""
    return min(runs, key=lambda run: run.child.seconds)


def race(what: str, ways: Ways, run: Callable[[Way], RelayedRun]) -> dict[str, list[RelayedRun]]:
    """Make the rounds, each way in turn."""
    return in_turns({name: partial(run, way) for name, way in ways.items()}, rounds=ROUNDS, label=f"{what}: ")
