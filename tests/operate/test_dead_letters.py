"""Dead letters: a look takes none away, and none is sent back or dropped without need."""

from __future__ import annotations

import pytest

from coldstream.errors import InvalidInputError, UnavailableError
from coldstream.operate.dead_letters import HIDDEN_S, dead_letters, discard, redrive
from coldstream.operate.letter_cause import LetterAction, LetterCause
from coldstream.operate.message_queue import QueueMessage
from tests.operate.fake_queue import FakeQueue


def diagnosis(message: QueueMessage) -> LetterCause:
    """What begins with `bad` would fail again."""
    return LetterCause("because", LetterAction.DISCARD if message.body.startswith("bad") else LetterAction.REDRIVE)


def test_a_look_takes_nothing_away_and_hides_nothing_afterwards() -> None:
    queue = FakeQueue(*(f"letter {number}" for number in range(35)))
    found = dead_letters(queue, diagnosis)
    assert [letter.message.body for letter in found] == queue.bodies
    assert not queue.hidden
    assert len(queue.messages) == 35


def test_a_look_ends_at_its_limit() -> None:
    queue = FakeQueue(*("letter" for _ in range(35)))
    assert len(dead_letters(queue, diagnosis, limit=12)) == 12
    assert not queue.hidden


class SlowLook(FakeQueue):
    """Each letter takes a second to look at; what was hidden for long enough shows again, the oldest first."""

    def __init__(self, *bodies: str) -> None:
        super().__init__(*bodies)
        self._now_s = 0
        self._hidden_to_s: dict[str, int] = {}

    def diagnosis(self, message: QueueMessage) -> LetterCause:
        self._now_s += 1
        return diagnosis(message)

    def receive(self, *, hidden_s: int) -> tuple[QueueMessage, ...]:
        self.hidden -= {id_ for id_, to_s in self._hidden_to_s.items() if to_s <= self._now_s}
        found = super().receive(hidden_s=hidden_s)
        self._hidden_to_s |= {message.id: self._now_s + hidden_s for message in found}
        return found


def test_a_look_that_outlasts_the_hiding_sees_every_letter_once() -> None:
    queue = SlowLook(*(f"bad {number}" for number in range(5 * HIDDEN_S)))
    assert [letter.message.body for letter in dead_letters(queue, queue.diagnosis)] == queue.bodies
    assert not queue.hidden
    report = redrive(queue, FakeQueue(), queue.diagnosis)
    assert [id_ for id_, _ in report.left] == list(queue.messages)


def test_letters_that_come_again_and_again_end_a_look() -> None:
    class HidesNothing(FakeQueue):
        def receive(self, *, hidden_s: int) -> tuple[QueueMessage, ...]:
            found = super().receive(hidden_s=hidden_s)
            self.hidden.clear()
            return found

    queue = HidesNothing(*(f"bad {number}" for number in range(35)))
    assert len(redrive(queue, FakeQueue(), diagnosis).left) == 10


def test_a_look_that_fails_shows_what_it_hid() -> None:
    queue = FakeQueue("good", "bad")

    def fails(_: QueueMessage) -> LetterCause:
        raise UnavailableError("no table")

    with pytest.raises(UnavailableError):
        dead_letters(queue, fails)
    assert not queue.hidden


def test_of_all_letters_those_that_would_fail_again_stay() -> None:
    queue, target = FakeQueue("good 1", "bad", "good 2"), FakeQueue()
    report = redrive(queue, target, diagnosis, sleep=lambda _: None)
    assert target.bodies == ["good 1", "good 2"]
    assert queue.bodies == ["bad"]
    assert not queue.hidden
    assert (len(report.done), report.left) == (2, (("00000002-0000", "because"),))


def test_a_letter_that_is_named_is_sent_whatever_is_thought_of_it() -> None:
    queue, target = FakeQueue("good", "bad"), FakeQueue()
    report = redrive(queue, target, diagnosis, ids=["00000002"], sleep=lambda _: None)
    assert (target.bodies, queue.bodies) == (["bad"], ["good"])
    assert not queue.hidden
    assert report.done == ("00000002-0000",)


def test_an_id_that_no_letter_has_is_named() -> None:
    report = redrive(FakeQueue("good"), FakeQueue(), diagnosis, ids=["00000009"], sleep=lambda _: None)
    assert (report.done, report.unknown) == ((), ("00000009",))


def test_a_short_id_names_nothing() -> None:
    queue = FakeQueue("good")
    with pytest.raises(InvalidInputError, match="too short"):
        discard(queue, diagnosis, ids=["0"])
    assert (queue.bodies, queue.hidden) == (["good"], set())


def test_no_more_letters_a_second_are_sent_than_allowed() -> None:
    slept: list[float] = []
    redrive(FakeQueue("1", "2", "3"), FakeQueue(), diagnosis, rate=4, sleep=slept.append)
    assert slept == [0.25, 0.25, 0.25]


def test_a_letter_is_deleted_only_once_the_other_queue_has_it() -> None:
    class Refuses(FakeQueue):
        def send(self, body: str) -> None:
            raise UnavailableError("throttled")

    queue = FakeQueue("good")
    with pytest.raises(UnavailableError):
        redrive(queue, Refuses(), diagnosis, sleep=lambda _: None)
    assert (queue.bodies, queue.hidden) == (["good"], set())


def test_a_letter_that_could_not_be_deleted_is_told() -> None:
    class Keeps(FakeQueue):
        def delete(self, messages: object) -> tuple[str, ...]:
            return ()

    queue = Keeps("good")
    with pytest.raises(UnavailableError, match="twice"):
        redrive(queue, FakeQueue(), diagnosis, sleep=lambda _: None)


def test_a_dry_run_changes_neither_queue() -> None:
    queue, target = FakeQueue("good", "bad"), FakeQueue()
    assert len(redrive(queue, target, diagnosis, dry_run=True).done) == 1
    assert len(discard(queue, diagnosis, dry_run=True).done) == 1
    assert (queue.bodies, target.bodies, queue.hidden) == (["good", "bad"], [], set())


def test_of_all_letters_only_those_without_use_are_dropped() -> None:
    queue = FakeQueue("good", "bad 1", "bad 2")
    report = discard(queue, diagnosis)
    assert queue.bodies == ["good"]
    assert len(report.done) == 2
