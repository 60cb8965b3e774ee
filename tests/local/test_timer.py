"""A function that a schedule calls."""

from __future__ import annotations

import threading

from coldstream.local.function_protocol import InvocationReport
from coldstream.local.timer import EVENT, call_every


def test_it_is_called_at_once_and_again_and_what_fails_is_reported() -> None:
    stop, calls, reports = threading.Event(), list[dict[str, object]](), list[InvocationReport]()

    def invoke(event: dict[str, object]) -> None:
        calls.append(event)
        if len(calls) == 2:
            raise ValueError("no")
        if len(calls) == 3:
            stop.set()

    call_every(0.001, function="Tick", invoke=invoke, report=reports.append, stop=stop)
    assert calls == [{}, {}, {}]
    assert [(one.function, one.event, one.error) for one in reports] == [("Tick", EVENT, "ValueError: no")]
