"""The parent's loop, in this process, with children that serve words: what rarely happens, made to happen."""

from __future__ import annotations

import errno
import logging
import os
import select
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import coldstream
from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.process.addresses import HostPort
from coldstream.gateway.process.admin import GatewayAdmin
from coldstream.gateway.process.channel import ChildMessage, ChildReport
from coldstream.gateway.process.gateway_process import GatewayProcess
from coldstream.gateway.process.options import AloneSide, GatewayOptions
from coldstream.gateway.process.signal_inbox import SignalInbox
from coldstream.gateway.process.status import QUIET_S
from coldstream.gateway.process.supervisor import FROZEN_S, SILENT_S, Supervisor
from tests.support.gateway_child import start_word_child

pytestmark = pytest.mark.server
ROOT = Path(__file__).parents[3]
PACKAGES = Path(coldstream.__path__[0]).parent
WITHIN_S = 60
OPTIONS = GatewayOptions(HostPort("127.0.0.1", 0), alone=AloneSide(auth_command=("true",)), drain_s=1.0)


@pytest.fixture(autouse=True)
def children_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{PACKAGES}{os.pathsep}{ROOT}")


def end_of_it(_: HostPort) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def turning(supervisor: Supervisor) -> Iterator[Callable[[Callable[[], object]], None]]:
    """Have the parent turn as often as a condition needs; kill what is left."""
    with supervisor._held, SignalInbox.open([signal.SIGHUP]) as inbox:
        supervisor._selector.register(inbox, selectors.EVENT_READ)

        def turn_until(condition: Callable[[], object]) -> None:
            deadline = time.monotonic() + WITHIN_S
            while not condition():
                assert time.monotonic() < deadline, "it did not come to that"
                supervisor._turn(inbox)

        try:
            yield turn_until
        finally:
            for child in supervisor.children():
                child.signal(signal.SIGKILL)
                child.reap()
            supervisor._selector.close()


def is_serving(supervisor: Supervisor) -> bool:
    return bool(supervisor.children()) and all(child.is_listening for child in supervisor.children())


def stop(child: GatewayProcess) -> None:
    """Have a child hang, and read what it has said before."""
    os.kill(child.pid, signal.SIGSTOP)
    while Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)
    while select.select([child], [], [], 0)[0]:
        child.hear()


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
def test_a_child_that_cannot_be_started_is_tried_again(code: int, caplog: pytest.LogCaptureFixture) -> None:
    attempts = []

    def start(number: int, options: GatewayOptions) -> GatewayProcess:
        attempts.append(number)
        if len(attempts) <= 2:
            raise OSError(code, os.strerror(code))
        return start_word_child(number, options)

    Supervisor(OPTIONS, start=start, on_ready=end_of_it).run()
    assert attempts == [0, 0, 0]
    assert [record.__dict__["reason"] for record in caplog.records] == [f"[Errno {code}] {os.strerror(code)}"] * 2


def test_a_child_that_hangs_is_killed_and_started_again() -> None:
    supervisor = Supervisor(OPTIONS, start=start_word_child)
    with turning(supervisor) as turn_until:
        turn_until(lambda: is_serving(supervisor))
        (child,) = supervisor.children()
        stop(child)
        child.reported_at -= SILENT_S + 1
        turn_until(lambda: supervisor.generation().restarts == 1)
        turn_until(lambda: is_serving(supervisor))
        assert supervisor.children() != (child,)


def test_a_gateway_whose_only_process_hangs_is_not_ready() -> None:
    supervisor = Supervisor(OPTIONS, start=start_word_child)
    with turning(supervisor) as turn_until, GatewayAdmin(supervisor, None, HostPort("127.0.0.1", 0)) as admin:
        assert admin.status().problems == ("no process serves: none runs",)
        supervisor._start_due(time.monotonic())
        assert admin.status().problems == ("no process serves: process 0 starts",)
        turn_until(lambda: is_serving(supervisor))
        assert admin.status().is_ready
        (child,) = supervisor.children()
        stop(child)
        child.reported_at -= QUIET_S
        (problem,) = admin.status().problems
        assert problem.startswith("no process serves: process 0 silent for ")


def test_a_child_that_took_long_to_start_serves_from_its_first_word_on() -> None:
    supervisor = Supervisor(OPTIONS, start=start_word_child)
    with turning(supervisor) as turn_until, GatewayAdmin(supervisor, None, HostPort("127.0.0.1", 0)) as admin:
        supervisor._start_due(time.monotonic())
        (child,) = supervisor.children()
        child.reported_at -= QUIET_S
        # A turn may hear the word itself, and then no other comes.
        while not child.is_listening:
            turn_until(lambda: child.is_listening or select.select([child], [], [], 0)[0])
            if not child.is_listening:
                child.hear()
        assert admin.status().is_ready


def test_nobody_is_killed_for_the_time_in_which_everything_was_stopped() -> None:
    supervisor = Supervisor(OPTIONS, start=start_word_child)
    with turning(supervisor) as turn_until:
        turn_until(lambda: is_serving(supervisor))
        (child,) = supervisor.children()
        stop(child)
        child.reported_at -= 10 * SILENT_S
        supervisor.turned_at -= 10 * SILENT_S
        at = time.monotonic()
        turn_until(lambda: time.monotonic() > at + 1)
        os.kill(child.pid, signal.SIGCONT)
        turn_until(lambda: child.reported_at > at + 1)
        assert supervisor.children() == (child,)
        assert supervisor.generation().restarts == 0
    assert FROZEN_S < SILENT_S


def test_files_that_change_while_a_child_starts_are_read_once_it_listens() -> None:
    supervisor = Supervisor(OPTIONS, start=start_word_child)
    with turning(supervisor) as turn_until:
        supervisor._start_due(time.monotonic())
        (child,) = supervisor.children()
        assert not child.is_listening
        while not child.is_listening:
            os.kill(os.getpid(), signal.SIGHUP)
            at = supervisor.turned_at
            turn_until(lambda at=at: supervisor.turned_at > at)
        turn_until(lambda: child.report.figures.returns_total >= 1)
        assert supervisor.children() == (child,)


def test_a_child_that_ends_is_counted_once_at_every_moment() -> None:
    supervisor = Supervisor(OPTIONS, start=start_word_child)
    with turning(supervisor) as turn_until:
        turn_until(lambda: is_serving(supervisor))
        (child,) = supervisor.children()
        child.report = ChildReport(GatewayFigures(takeovers_total=7))
        before = supervisor.generation()
        child.hear = lambda: False  # type: ignore[method-assign]
        turn_until(lambda: not supervisor.children())
        after = supervisor.generation()
    for found in (before, after):
        running = sum(one.report.figures.takeovers_total for one in found.children if one is child)
        assert running + found.ended.takeovers_total == 7
    assert (before.restarts, after.restarts) == (0, 1)


def test_a_child_of_another_release_is_left_to_serve(caplog: pytest.LogCaptureFixture) -> None:
    supervisor = Supervisor(OPTIONS, start=start_word_child)
    with turning(supervisor) as turn_until:
        turn_until(lambda: is_serving(supervisor))
        (child,) = supervisor.children()
        message = ChildMessage(report=ChildReport()).to_bytes().replace(b"connections", b"carriages")
        real, told = child._channel, 0

        class Strange:
            def recv(self, most: int) -> bytes:
                nonlocal told
                told += 1
                return message if real.recv(most) else b""

        child._channel = Strange()  # type: ignore[assignment]
        turn_until(lambda: told >= 2)
        child._channel = real
        assert supervisor.children() == (child,)
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1
