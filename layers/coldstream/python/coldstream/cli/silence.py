"""A word on standard error when a service does not answer for a while, so that nobody wonders what hangs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import typer

from coldstream.terminal.output import printable

T = TypeVar("T")

FIRST_S = 3.0
"""How long a silence lasts before it is reported. Each further report comes after twice the time."""

_LOOK_S = 0.1


class SilenceWatch:
    """Watches how long a block has been waiting.

    The block's thread writes `since`, and the watching thread only reads it, so it needs no lock: a stale value costs
    one look.
    """

    def __init__(self, service: str) -> None:
        self._service = service
        self._since: float | None = time.monotonic()

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items. Only waiting for the next one counts as silence, not what the caller does with it."""
        iterator = iter(items)
        while True:
            self._since = time.monotonic()
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                self._since = None
            yield item

    def silent(self) -> tuple[float, str] | None:
        """Return since when the block has been waiting, and for what; None if it is not."""
        since = self._since
        return None if since is None else (since, self._service)


@contextmanager
def report_silence(service: str) -> Iterator[SilenceWatch]:
    """Report when `service` is silent while the block runs. A block that takes items passes them through `each`."""
    watch = SilenceWatch(service)
    with _reporting(watch.silent):
        yield watch


@contextmanager
def report_silence_of_aws() -> Iterator[None]:
    """Report when AWS does not answer what the block asks, in any thread."""
    with _reporting(_silence_of_aws):
        yield


def _silence_of_aws() -> tuple[float, str] | None:
    # Not imported here: it brings the SDK, which most commands load late or not at all.
    calls = sys.modules.get("coldstream.store.calls")
    return None if calls is None or not hasattr(calls, "CALLS") else calls.CALLS.silent()


@contextmanager
def _reporting(silent: Callable[[], tuple[float, str] | None]) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=_report, args=(silent, over), name="silence", daemon=True)
    thread.start()
    try:
        yield
    finally:
        # Joined, so that no report comes after the result or the error of the block.
        over.set()
        thread.join()


def _report(silent: Callable[[], tuple[float, str] | None], over: threading.Event) -> None:
    """Report silences until it is over."""
    told_since, report_after_s = -1.0, FIRST_S
    while not over.wait(_LOOK_S):
        found = silent()
        if found is None:
            continue
        since, service = found
        if since != told_since:
            told_since, report_after_s = since, FIRST_S
        silence_s = time.monotonic() - since
        if silence_s >= report_after_s:
            line = f"no answer from {service} for {silence_s:.0f} s; still trying, Ctrl-C ends it"
            typer.echo(printable(f"coldstream: {line}"), err=True)
            report_after_s *= 2
