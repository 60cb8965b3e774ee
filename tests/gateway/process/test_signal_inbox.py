from __future__ import annotations

import os
import select
import signal

import pytest

from coldstream.gateway.process.signal_inbox import SignalInbox

NUMBERS = (signal.SIGTERM, signal.SIGHUP)


def test_signals_wake_who_waits_and_come_in_order_each_once() -> None:
    with SignalInbox.open(NUMBERS) as inbox:
        assert inbox.take() == []
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
            os.kill(os.getpid(), number)
        assert select.select([inbox], [], [], 0)[0] == [inbox]
        assert inbox.take() == [signal.SIGHUP, signal.SIGTERM]
        assert select.select([inbox], [], [], 0)[0] == []
        os.kill(os.getpid(), signal.SIGTERM)
        assert inbox.take() == [signal.SIGTERM]


def test_no_flood_of_signals_hides_the_one_that_ends_all(capfd: pytest.CaptureFixture[str]) -> None:
    with SignalInbox.open(NUMBERS) as inbox:
        for _ in range(5_000):
            os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        assert inbox.take() == [signal.SIGHUP, signal.SIGTERM]
    assert capfd.readouterr().err == ""


def test_what_signals_did_before_they_do_afterwards_and_nohup_is_believed() -> None:
    before = {number: signal.getsignal(number) for number in NUMBERS}
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with SignalInbox.open(NUMBERS) as inbox:
            os.kill(os.getpid(), signal.SIGHUP)
            assert inbox.take() == []
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before[signal.SIGHUP])
    assert signal.getsignal(signal.SIGTERM) == before[signal.SIGTERM]
