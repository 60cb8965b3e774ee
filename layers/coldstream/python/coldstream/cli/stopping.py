"""Ctrl-C and SIGTERM for commands that end at the next safe place, with a report of what they did."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def signals_of_a_command() -> Iterator[None]:
    """Let a command handle Ctrl-C and SIGTERM as it likes; after it they do what they did before."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_on_signals() -> threading.Event:
    """Return an event that the first Ctrl-C or SIGTERM sets. The second Ctrl-C interrupts at once, as ever.

    The main thread may ask the event, and not wait for it: about to wait, it holds the lock that the handler needs.
    """
    stopped = threading.Event()

    def stop(*_: object) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever asks twice is not asked to wait

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return stopped
