"""The in-memory double of a broker's vhost, for tests: it keeps the rules of the real one, and fails where it is told.

`calls` lists the methods called, by name. `fault` breaks one call of them. Publishers, connections and ends of streams
are what a test puts there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from coldstream.errors import BrokerRefusedError, StreamNotFoundError, UnavailableError
from coldstream.shards.broker_port import BrokerBinding, BrokerExchange, BrokerNode, BrokerQueue, StreamPublisher
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class BrokerFault:
    """The call that fails, counted from 0, and whether it was carried out: not, in full, or by the half (bursts)."""

    at: int
    carried_out: Literal["not", "half", "in full"] = "not"


class MemoryShardBroker:
    """Implement `broker_port.ShardBroker` in memory.

    `fault` makes a call raise UnavailableError; `on_call` is called before each call with the method's name, and may
    change what is here, or raise.
    """

    def __init__(self, *nodes: str) -> None:
        self.running: dict[str, bool] = dict.fromkeys(nodes or ("rabbit@a",), True)
        self.exchanges: dict[str, BrokerExchange] = {}
        self.bound: dict[str, list[BrokerBinding]] = {}
        self.declared: dict[str, BrokerQueue] = {}
        self.ends: dict[str, int] = {}
        self.present: list[StreamPublisher] = []
        self.connected: set[str] = set()
        self.calls: list[str] = []
        self.fault: BrokerFault | None = None
        self.on_call: Callable[[str], None] | None = None

    def nodes(self) -> tuple[BrokerNode, ...]:
        """Return the nodes, by name."""
        with self._call("nodes"):
            return tuple(BrokerNode(name, self.running[name]) for name in sorted(self.running))

    def exchange(self, name: str) -> BrokerExchange | None:
        """Return an exchange, None if there is none."""
        with self._call("exchange"):
            return self.exchanges.get(name)

    def bindings(self, exchange: str) -> tuple[BrokerBinding, ...]:
        """Return the bindings of an exchange."""
        with self._call("bindings"):
            return tuple(self.bound.get(exchange, ()))

    def queues(self, names: Iterable[str]) -> Mapping[str, BrokerQueue]:
        """Return those queues that exist; one on a node that does not run has no leader."""
        with self._call("queues"):
            return {name: self._shown(self.declared[name]) for name in names if name in self.declared}

    def declare_exchange(self, exchange: BrokerExchange) -> None:
        """Declare an exchange. Raises BrokerRefusedError if another is there."""
        with self._call("declare_exchange"):
            found = self.exchanges.setdefault(exchange.name, exchange)
            if found != exchange:
                raise BrokerRefusedError(f"exchange {exchange.name!r} is there, and differs")

    def delete_exchange(self, name: str) -> None:
        """Delete an exchange with its bindings, if it is there."""
        with self._call("delete_exchange"):
            self.exchanges.pop(name, None)
            self.bound.pop(name, None)
            self._drop_bindings_to(name, "exchange")

    def declare_queue(self, queue: BrokerQueue) -> None:
        """Declare a queue. Raises BrokerRefusedError if another is there, UnavailableError if its node does not run."""
        with self._call("declare_queue"):
            node = queue.node or min(name for name, runs in self.running.items() if runs)
            if not self.running.get(node):
                raise UnavailableError(f"{node} does not run")
            found = self.declared.setdefault(queue.name, replace(queue, node=node))
            if (found.type, found.arguments) != (queue.type, queue.arguments):
                raise BrokerRefusedError(f"queue {queue.name!r} is there, and differs")
            self.ends.setdefault(queue.name, 0)

    def delete_queue(self, name: str, *, only_empty: bool = False) -> None:
        """Delete a queue with its bindings, if it is there."""
        with self._call("delete_queue"):
            found = self.declared.get(name)
            if found is not None and only_empty and found.messages:
                raise BrokerRefusedError(f"queue {name!r} is not empty")
            self.declared.pop(name, None)
            self.ends.pop(name, None)
            self._drop_bindings_to(name, "queue")

    def bind(self, exchange: str, bindings: Sequence[BrokerBinding]) -> None:
        """Make bindings; one that is there already stays as it is."""

        def carry_out(some: Sequence[BrokerBinding]) -> None:
            held = self._held(exchange)
            for one in some:
                known = self.declared if one.destination_type == "queue" else self.exchanges
                if one.destination not in known:
                    raise BrokerRefusedError(f"no {one.destination_type} {one.destination!r}")
                if one not in held:
                    held.append(one)

        self._burst("bind", bindings, carry_out)

    def unbind(self, exchange: str, bindings: Sequence[BrokerBinding]) -> None:
        """Remove bindings that are there."""

        def carry_out(some: Sequence[BrokerBinding]) -> None:
            held = self._held(exchange)
            held[:] = [one for one in held if one not in some]

        self._burst("unbind", bindings, carry_out)

    def publishers(self) -> tuple[StreamPublisher, ...]:
        """Return the publishers that a test put into `present`."""
        with self._call("publishers"):
            return tuple(self.present)

    def connections(self) -> frozenset[str]:
        """Return the connections of `present`, and those that a test put into `connected`."""
        with self._call("connections"):
            return frozenset(self.connected) | {one.connection for one in self.present}

    def end(self, stream: str) -> Offset:
        """Return what a test put into `ends`, 0 for a new stream."""
        with self._call("end"):
            if stream not in self.ends:
                raise StreamNotFoundError(f"no stream {stream!r}")
            return Offset(self.ends[stream])

    def _shown(self, queue: BrokerQueue) -> BrokerQueue:
        return queue if queue.node is None or self.running.get(queue.node) else replace(queue, node=None)

    def _held(self, exchange: str) -> list[BrokerBinding]:
        if exchange not in self.exchanges:
            raise BrokerRefusedError(f"no exchange {exchange!r}")
        return self.bound.setdefault(exchange, [])

    def _drop_bindings_to(self, name: str, kind: Literal["queue", "exchange"]) -> None:
        for held in self.bound.values():
            held[:] = [one for one in held if (one.destination, one.destination_type) != (name, kind)]

    def _burst(
        self, method: str, bindings: Sequence[BrokerBinding], carry_out: Callable[[Sequence[BrokerBinding]], None]
    ) -> None:
        is_half = self.fault is not None and self.fault == BrokerFault(len(self.calls), "half")
        with self._call(method):
            carry_out(bindings[: len(bindings) // 2] if is_half else bindings)

    @contextmanager
    def _call(self, method: str) -> Iterator[None]:
        """Count a call, and let it fail before it or after it, as `fault` says."""
        number = len(self.calls)
        self.calls.append(method)
        if self.on_call is not None:
            self.on_call(method)
        fails = self.fault is not None and self.fault.at == number
        lost = UnavailableError(f"call {number}, {method}, has no answer")
        if fails and self.fault is not None and self.fault.carried_out == "not":
            raise lost
        yield
        if fails:
            raise lost
