"""Runs of a client on ways to a broker, and the table that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench.gateway_process import RelayProcess
from bench.gateway_world import WrittenStream
from bench.harness import Aim, Cell, ChildRun, in_child, in_turns
from bench.usage import cpu_s

GIB = 1 << 30
ROUNDS = 5
CREDIT = {500: 10, 1: 1_000}
"""What a consumer gives at first, by the messages of a chunk; then as much as was delivered."""
DIRECT, BYTES_ALONE, GATEWAY = "direct", "relay of bytes", "gateway"


@dataclass(frozen=True, slots=True)
class RelayedRun:
    """A client's run, and the CPU seconds that the relay, and the processes behind it, used for it."""

    child: ChildRun
    relay_cpu_s: float = 0.0
    behind_cpu_s: Mapping[str, float] = field(default_factory=dict)

    def describe_cpu(self) -> str:
        """Return what each process took for a GiB, for a note."""
        found = {"the client": self.child.cpu_s, **self.behind_cpu_s}
        gib = self.child.answer["bytes"] / GIB
        return ", ".join(f"{who} {seconds / gib:.2f}" for who, seconds in found.items())


@dataclass(frozen=True, slots=True)
class Way:
    """A way to a broker: its port, the relay that it leads through, and the processes behind that, by name."""

    port: int
    relay: RelayProcess | None = None
    with_tls: bool = False
    behind: Mapping[str, int] = field(default_factory=dict)

    def call(self, function: str, **arguments: Any) -> RelayedRun:
        """Run a client on this way."""
        before = self._cpu_s()
        child = in_child(f"bench.stream_client:{function}", {"port": self.port, **arguments})
        used = {who: after - before[who] for who, after in self._cpu_s().items()}
        return RelayedRun(child, used.pop("the relay", 0.0), used)

    def read(self, stream: WrittenStream, *, with_crc: bool = False) -> RelayedRun:
        """Read all of a stream's chunks."""
        credit = CREDIT[stream.messages_a_chunk]
        wanted = {"stream": stream.name, "chunks": stream.chunks, "credit": credit}
        return self.call("read", **wanted, with_crc=with_crc, with_tls=self.with_tls)

    def _cpu_s(self) -> dict[str, float]:
        used = {who: cpu_s(process_id) for who, process_id in self.behind.items()}
        return used if self.relay is None else {"the relay": self.relay.cpu_s, **used}


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

    def shares(self, what: str, runs: Mapping[str, list[RelayedRun]]) -> None:
        """Note what the other processes of the best runs took."""
        parts = [f"{way}, {best_run(runs[way]).describe_cpu()}" for way in (DIRECT, GATEWAY)]
        self.notes.append(f"{what}, CPU s a GiB beside the gateway's: {'; through the '.join(parts)}")

    def aim(self, text: str, result: float, least: float) -> None:
        """Add an aim of a ratio."""
        self.aims.append(Aim(text, f"{result:.2f}x", result >= least))


def best_run(runs: list[RelayedRun]) -> RelayedRun:
    """Return the shortest run."""
    return min(runs, key=lambda run: run.child.seconds)


def race(what: str, ways: Ways, run: Callable[[Way], RelayedRun]) -> dict[str, list[RelayedRun]]:
    """Make the rounds, each way in turn."""
    return in_turns({name: partial(run, way) for name, way in ways.items()}, rounds=ROUNDS, label=f"{what}: ")
