"""A word on standard error when a service does not answer for a while, so that nobody wonders what hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import typer

from coldstream.console.output import printable

T = TypeVar("T")

FIRST_S = 3.0
"""How long a silence lasts before it is reported. Each further report comes after twice the time."""

_LOOK_S = 0.1


class SilenceWatch:
    """Watches how long a block has been waiting.

    The block's thread writes `is_waiting` and `arrivals`, and the watching thread only reads them, so they need no
    lock: a stale value costs one look.
    """

    def __init__(self) -> None:
        self.is_waiting = True
        self.arrivals = 0
        self._over = threading.Event()

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items. Only waiting for the next one counts as silence, not what the caller does with it."""
        iterator = iter(items)
        while True:
            self.is_waiting = True
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                self.is_waiting = False
                self.arrivals += 1
            yield item

    def run(self, service: str) -> None:
        """Report silences until `stop`."""
        seen, since, report_after_s = -1, time.monotonic(), FIRST_S
        while not self._over.wait(_LOOK_S):
            now = time.monotonic()
            if not self.is_waiting or self.arrivals != seen:
                seen, since, report_after_s = self.arrivals, now, FIRST_S
            elif now - since >= report_after_s:
                line = f"no answer from {service} for {now - since:.0f} s; still trying, Ctrl-C ends it"
                typer.echo(printable(f"coldstream: {line}"), err=True)
                report_after_s *= 2

    def stop(self) -> None:
        """End `run`."""
        self._over.set()


@contextmanager
def report_silence(service: str) -> Iterator[SilenceWatch]:
    """Report when `service` is silent while the block runs. A block that takes items passes them through `each`."""
    watch = SilenceWatch()
    thread = threading.Thread(target=watch.run, args=(service,), name="silence", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        # Joined, so that no report comes after the result or the error of the block.
        watch.stop()
        thread.join()
