"""Say on standard error when nothing comes for a while: who waits for a service sees whom for."""

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
"""Of silence, until it is told; each further word comes after twice the time."""

_LOOK_S = 0.1


class _Silence:
    """What the block that waits shares with the thread that watches it. Each field has one writer."""

    def __init__(self) -> None:
        self.is_waiting = True
        self.came = 0
        self.over = threading.Event()

    def each(self, items: Iterable[T]) -> Iterator[T]:
        """Yield items; only the time until the next one comes counts as silence."""
        iterator = iter(items)
        while True:
            self.is_waiting = True
            try:
                item = next(iterator)
            except StopIteration:
                return
            finally:
                self.is_waiting = False
                self.came += 1
            yield item

    def watch(self, whom: str) -> None:
        seen, since, tell_after_s = -1, time.monotonic(), FIRST_S
        while not self.over.wait(_LOOK_S):
            now = time.monotonic()
            if not self.is_waiting or self.came != seen:
                seen, since, tell_after_s = self.came, now, FIRST_S
            elif now - since >= tell_after_s:
                line = f"no answer from {whom} for {now - since:.0f} s; still trying, Ctrl-C ends it"
                typer.echo(printable(f"coldstream: {line}"), err=True)
                tell_after_s *= 2


@contextmanager
def told_when_silent(whom: str) -> Iterator[_Silence]:
    """Tell of silence while the block runs, or where it takes what it waits for by `each`, while it waits for that."""
    silence = _Silence()
    watching = threading.Thread(target=silence.watch, args=(whom,), name="silence", daemon=True)
    watching.start()
    try:
        yield silence
    finally:
        silence.over.set()
        watching.join()
