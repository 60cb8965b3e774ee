"""A play ends, whatever its actors do, and says who was to blame."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.support import interleavings
from tests.support.interleavings import Schedule, Stage, Stuck


def staged(stage: Stage, **works: Callable[[], None]) -> Stage:
    for name, work in works.items():
        stage.add(name, work, ())
    return stage


def calling(stage: Stage, times: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(times):
            stage.call("GetItem", "table")

    return work


def test_an_actor_that_waits_for_what_another_holds_is_named_with_its_last_call() -> None:
    stage, lock = Stage(patience_s=0.01), threading.Lock()

    def holding() -> None:
        with lock:
            calling(stage, 2)()

    def waiting() -> None:
        calling(stage, 1)()
        lock.acquire(timeout=60)

    staged(stage, first=holding, second=waiting)
    with pytest.raises(Stuck, match=r"(?s)second neither calls nor ends.*GetItem.*lock\.acquire"):
        stage.play(Schedule.parse("first=1 second first"))


def test_an_actor_whose_calls_never_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleavings, "MAX_CALLS", 20)
    stage = Stage()
    staged(stage, first=calling(stage, 1 << 20))
    with pytest.raises(Stuck, match="first makes calls without end"):
        stage.play(Schedule.parse("first"))


def test_an_actor_that_a_schedule_kills_often_is_started_again() -> None:
    stage = Stage()
    staged(stage, first=calling(stage, 2))
    stage.play(Schedule.parse("first=1! " * 10))
    assert stage.actors["first"].is_done


def test_an_actor_that_is_always_refused_is_named() -> None:
    def refused() -> None:
        raise ConnectionError("for now")

    stage = Stage()
    stage.add("first", refused, (ConnectionError,))
    with pytest.raises(AssertionError, match="first never ends"):
        stage.play(Schedule.parse("first"))


def test_calls_that_never_end_after_the_play_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleavings, "MAX_CALLS", 20)
    with pytest.raises(Stuck, match="calls without end"):
        calling(Stage(), 1 << 20)()


def test_an_actor_that_calls_in_another_thread_is_named() -> None:
    stage = Stage()

    def elsewhere() -> None:
        told: list[BaseException] = []

        def work() -> None:
            try:
                calling(stage, 1)()
            except Stuck as err:
                told.append(err)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        raise told[0]

    staged(stage, first=elsewhere)
    with pytest.raises(Stuck, match="first makes GetItem in a thread of its own"):
        stage.play(Schedule.parse("first"))


def test_no_actor_waits_once_a_play_has_failed() -> None:
    stage, ended = Stage(), []

    def waiting() -> None:
        try:
            calling(stage, 2)()
        finally:
            ended.append("first")

    def failing() -> None:
        raise ValueError("it fails")

    staged(stage, first=waiting, second=failing)
    with pytest.raises(ValueError, match="it fails"):
        stage.play(Schedule.parse("first=1 second"))
    assert ended == ["first"]
