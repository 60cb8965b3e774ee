"""The parent: it takes the port, starts a child a core, starts those again that end, and ends all of them orderly.

Every child listens by itself at the same address (SO_REUSEPORT), and the kernel spreads new connections over those that
listen. So a child that has died gets none until it is there again. The parent only holds the address: its own socket is
bound, and doesn't listen.

SIGTERM, SIGINT   no new connections; children have `drain_s` for those that are open, then the parent ends. A second
                  signal ends everything at once.
SIGHUP            children read their files again.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from coldstream.errors import InvalidSettingError
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.process.addresses import HostPort
from coldstream.gateway.process.gateway_process import GatewayProcess
from coldstream.gateway.process.listening import hold_address
from coldstream.gateway.process.options import GatewayOptions
from coldstream.gateway.process.service_notice import notify_supervisor
from coldstream.gateway.process.signal_inbox import SignalInbox
from coldstream.retry import Backoff

KILL_AFTER_S = 15.0
"""Beyond the time to drain: to write what it has noted takes a child up to ten. If it has not ended then, it hangs."""

FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
"""Before a child that ended is started again: the pause doubles while children end soon after they began."""

STEADY_S = 60.0
"""After so long, a child's end has nothing to do with its beginning."""

SILENT_S = 60.0
"""A child that has not reported for so long hangs: it is killed, and started again."""

FROZEN_S = 10.0
"""If the parent itself has not turned for so long, somebody had stopped the container: nobody is silent for that."""

_ENDING = (signal.SIGTERM, signal.SIGINT)
_LOG = logging.getLogger(__name__)


@dataclass(slots=True)
class _Slot:
    """The place of a child, whichever process is in it."""

    number: int
    child: GatewayProcess | None = None
    start_at: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S))

    def pause_s(self) -> float:
        """Have the next start wait; return how long."""
        pause_s = self.backoff.next_delay_s()
        self.start_at = time.monotonic() + pause_s
        return pause_s


@dataclass(frozen=True, slots=True)
class Generation:
    """The children that run, and what those before them have counted, at one moment."""

    children: tuple[GatewayProcess, ...]
    ended: GatewayFigures
    """Totals of the children that have ended: totals never fall when one is started again."""
    restarts: int


class Supervisor:
    """Runs the children until a signal ends them. Other threads may read its properties and `generation`."""

    def __init__(
        self,
        options: GatewayOptions,
        *,
        start: Callable[[int, GatewayOptions], GatewayProcess] = GatewayProcess,
        on_ready: Callable[[HostPort], None] = lambda _: None,
    ) -> None:
        self._start = start
        self._on_ready = on_ready
        self._held = hold_address(options.listen)
        host, port = self._held.getsockname()[:2]
        self.listen = HostPort(host, port)
        self._options = replace(options, listen=self.listen)
        self._slots = [_Slot(number) for number in range(options.processes)]
        self._lock = threading.Lock()
        self._ended = GatewayFigures()
        self._was_ready = False
        self._restarts = 0
        self.is_draining = False
        self.began_at = self.turned_at = time.monotonic()
        self._drain_until: float | None = None
        self._selector = selectors.DefaultSelector()

    @property
    def options(self) -> GatewayOptions:
        """The options, with the port that was taken."""
        return self._options

    def children(self) -> tuple[GatewayProcess, ...]:
        """Return the children that run."""
        return self.generation().children

    def generation(self) -> Generation:
        """Return who runs and who has ended. A child is the one or the other, never both, so sums never fall."""
        with self._lock:
            ended = GatewayFigures()
            ended.add_totals(self._ended)
            running = tuple(slot.child for slot in self._slots if slot.child is not None)
            return Generation(running, ended, self._restarts)

    def run(self) -> None:
        """Run until a signal has ended all children.

        Call it in the main thread. Raises InvalidSettingError if the first children find a setting wrong.
        """
        with self._held, SignalInbox.open((*_ENDING, signal.SIGHUP)) as inbox:
            self._selector.register(inbox, selectors.EVENT_READ)
            try:
                while not (self.is_draining and not self.children()):
                    self._turn(inbox)
            finally:
                for child in self.children():
                    child.signal(signal.SIGKILL)
                    child.reap()
                self._selector.close()

    def _turn(self, inbox: SignalInbox) -> None:
        now = time.monotonic()
        if now - self.turned_at > FROZEN_S:
            for child in self.children():
                child.reported_at = now
        self.turned_at = now
        self._start_due(now)
        for key, _ in self._selector.select(timeout=self._wait_s(now)):
            if key.fileobj is not inbox:
                self._hear(key.data)
        self._take_signals(inbox.take())
        self._kill_hanging(time.monotonic())

    def _start_due(self, now: float) -> None:
        if not self.is_draining:
            for slot in self._slots:
                if slot.child is None and slot.start_at <= now:
                    self._start_child(slot)

    def _kill_hanging(self, now: float) -> None:
        for child in self.children():
            if now - child.reported_at > SILENT_S:
                _LOG.error("a process hangs, and is killed", extra={"child": child.number, "pid": child.pid})
                child.signal(signal.SIGKILL)
        if self._drain_until is not None and now > self._drain_until:
            _LOG.warning("processes have not ended in time, and are killed")
            for child in self.children():
                child.signal(signal.SIGKILL)

    def _wait_s(self, now: float) -> float:
        """Wait for a second at most: whoever looks whether the parent still turns must not be deceived."""
        starts = [slot.start_at - now for slot in self._slots if slot.child is None]
        return max(0.0, min(1.0, *starts)) if starts and not self.is_draining else 1.0

    def _start_child(self, slot: _Slot) -> None:
        try:
            child = self._start(slot.number, self._options)
        except OSError as err:  # no memory or no process to be had: the other children go on
            pause_s = slot.pause_s()
            _LOG.error(
                "a process cannot be started, and is tried again",
                extra={"child": slot.number, "reason": str(err), "pause_s": round(pause_s, 3)},
            )
            return
        with self._lock:
            slot.child = child
        self._selector.register(child, selectors.EVENT_READ, slot)
        _LOG.debug("a process starts", extra={"child": slot.number, "pid": child.pid})

    def _hear(self, slot: _Slot) -> None:
        child = slot.child
        assert child is not None
        if child.hear():
            self._say_ready()
            return
        self._selector.unregister(child)
        status = child.reap()
        ran_s = time.monotonic() - child.began_at
        with self._lock:
            self._ended.add_totals(child.report.figures)
            slot.child = None
            self._restarts += not self.is_draining
        if self.is_draining:
            return
        if child.failed is not None and not self._was_ready:
            raise InvalidSettingError(*child.failed)
        if ran_s >= STEADY_S:
            slot.backoff.reset()
        pause_s = slot.pause_s()
        _LOG.error(
            "a process has ended, and is started again",
            extra={"child": slot.number, "status": status, "reason": child.failed, "pause_s": round(pause_s, 3)},
        )

    def _say_ready(self) -> None:
        if not self._was_ready and all(slot.child is not None and slot.child.is_listening for slot in self._slots):
            self._was_ready = True
            _LOG.info("listening", extra={"address": str(self.listen), "processes": len(self._slots)})
            notify_supervisor("READY=1")
            self._on_ready(self.listen)

    def _take_signals(self, numbers: list[int]) -> None:
        for number in numbers:
            if number == signal.SIGHUP:
                for child in self.children():
                    child.reload()
            elif number in _ENDING:
                self._end(number)

    def _end(self, number: int) -> None:
        if self.is_draining:
            for child in self.children():
                child.signal(signal.SIGKILL)
                with suppress(OSError):
                    child.reap()
            os._exit(128 + number)
        self.is_draining = True
        self._drain_until = time.monotonic() + self._options.drain_s + KILL_AFTER_S
        _LOG.info("draining", extra={"seconds": self._options.drain_s})
        notify_supervisor("STOPPING=1")
        for child in self.children():
            child.signal(signal.SIGTERM)
