"""The health of an archive: what the doctor, streams, agents and letters tell, and what could not be asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coldstream.agent.monitor.status import AgentStatus
from coldstream.archive.missing import record_missing
from coldstream.browse.agents import known_lags
from coldstream.browse.catalogue_row import KnownLag
from coldstream.browse.health import HealthSources, read_health
from coldstream.browse.health_report import HealthFinding, HealthLevel, HealthReport
from coldstream.browse.health_streams import LookBounds
from coldstream.browse.meanings import MEANINGS
from coldstream.errors import ColdstreamError, UnavailableError
from coldstream.manifest.entry import Loss, Quarantine
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.operate.diagnosis import ArchivePart
from coldstream.operate.doctor import Doctor, StackPlace
from coldstream.operate.letter_cause import LetterAction, LetterCause
from coldstream.operate.stack_port import (
    BucketConfiguration,
    EventRule,
    QueueState,
    RingingAlarm,
    TableConfiguration,
)
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset, TimestampMs
from tests.operate.fake_queue import FakeQueue
from tests.operate.test_named_commands import problem_of
from tests.store.samples import commit, entry
from tests.support.agent_status import NOW, agent_status, stream_status
from tests.support.hostile_text import hostile_streams
from tests.support.removing import delete, put_hold

WHOLE = StackPlace("bucket", "table", "bus", "arn:aws:sqs:eu-central-1:1:upload", "https://sqs/letters", "tide")


class Stack:
    """Answers as it is told; an exception is raised."""

    def __init__(self, **answers: Any) -> None:
        self.answers = {
            "bucket": BucketConfiguration("aws:kms", aborts_uploads=True),
            "table": TableConfiguration("ACTIVE", ("by-time",), has_backups=True, is_protected=True),
            "rules": (EventRule("rolled", is_enabled=True, targets=1),),
            "queue": QueueState("queue", 0, 0),
            "oldest_message_s": None,
            "ringing": (),
            "has_alarms": True,
            "newest_fragment_s": 60.0,
        } | answers

    def __getattr__(self, name: str) -> Callable[[str], Any]:
        def ask(_: str) -> Any:
            if isinstance(answer := self.answers[name], Exception):
                raise answer
            return answer

        return ask


def stream(number: int) -> StreamId:
    return StreamId("/", f"orders {number}", Incarnation(f"__orders_{number}_1763700000000000000"))


def health(
    table: MemoryTable,
    *,
    place: StackPlace = WHOLE,
    stack: Stack | None = None,
    now: int = NOW,
    **sources: Any,
) -> HealthReport:
    doctor = Doctor(place, table, MemoryObjects(), Keys(), stack or Stack(), lambda: TimestampMs(now))
    return read_health(HealthSources(doctor, **sources))


def about(report: HealthReport, what: str) -> list[HealthFinding]:
    return [one for one in report.findings if one.what == what]


def with_streams(count: int, *, time: int = NOW) -> MemoryTable:
    table = MemoryTable()
    for number in range(count):
        commit(table, entry(0, 10, time=time), stream(number))
    return table


def test_everything_that_can_be_asked_is_asked_and_has_a_meaning() -> None:
    report = health(with_streams(3), agents={"http://node-1:9478": lambda: agent_status(stream_status())})
    assert {one.part for one in report.findings} == set(ArchivePart) - {ArchivePart.SETTINGS}
    assert all(one.meaning for one in report.findings)
    assert report.of(HealthLevel.BAD) == ()
    assert (report.streams, report.looked_at_streams) == (3, 3)
    levels = [list(HealthLevel).index(one.level) for one in report.findings]
    assert levels == sorted(levels)


def test_what_cannot_be_asked_is_told_as_not_asked_with_the_reason() -> None:
    absent = ColdstreamError("the service is not implemented here")
    stack = Stack(**dict.fromkeys(Stack().answers, absent))
    report = health(with_streams(1), place=StackPlace("bucket", "table"), stack=stack)
    found = {one.what: one.found for one in report.of(HealthLevel.NOT_ASKED)}
    assert found["no event failed for good"] == "COLDSTREAM_DEAD_LETTER_QUEUE is not set"
    assert found["no alarm rings"] == "no stack is named"
    assert found["agents archive, and keep up"] == "no agent is named"
    assert found["it has its index and backups"] == "the service is not implemented here"


def test_the_worst_comes_first_and_gives_the_report_its_level() -> None:
    stack = Stack(ringing=(RingingAlarm("tide-DamageAlarm-1X", "1 >= 1"),), queue=QueueState("letters", 2, 1))
    report = health(with_streams(1), stack=stack)
    assert report.level is HealthLevel.BAD
    first = report.findings[0]
    assert first.level is HealthLevel.BAD
    (alarm,) = about(report, "tide-DamageAlarm-1X rings")
    assert (alarm.todo, bool(alarm.meaning)) == ("coldstream scrub", True)
    (letters,) = about(report, "no event failed for good")
    assert (letters.found, letters.todo) == ("3 dead letters", "coldstream dead-letters list")


def test_streams_tell_losses_holds_quarantine_gaps_and_quiet() -> None:
    table = with_streams(4)
    commit(table, entry(20, 30, time=NOW), stream(0))
    record_missing(table, stream(1), Loss(Offset(10), Offset(12), "full", NOW))
    record_missing(table, stream(2), Quarantine(Offset(10), Offset(12), "bad", NOW, "k", "e"))
    put_hold(table, stream(3).incarnation, 0, None)
    commit(table, entry(0, 10, time=NOW - 10 * 24 * 3600 * 1000), stream(4))
    report = health(table)
    kinds = {
        "unexplained gaps": (0, HealthLevel.WARN, "coldstream describe 'orders 0'"),
        "losses": (1, HealthLevel.WARN, "coldstream describe 'orders 1'"),
        "quarantine": (2, HealthLevel.WARN, "coldstream quarantine list 'orders 2'"),
        "holds": (3, HealthLevel.INFO, "coldstream hold list 'orders 3'"),
        "quiet streams": (4, HealthLevel.INFO, "coldstream agent status, on the broker of the stream"),
    }
    for kind, (number, level, todo) in kinds.items():
        (one,) = about(report, kind)
        assert (one.stream, one.level, one.todo, one.meaning) == (stream(number), level, todo, MEANINGS[kind])


def test_a_deleted_stream_is_neither_quiet_nor_lossy() -> None:
    table = with_streams(1, time=1000)
    delete(table, stream(0).incarnation)
    assert about(health(table), "quiet streams") == []


def test_of_many_streams_with_one_trouble_twenty_are_named() -> None:
    found = about(health(with_streams(50, time=1000)), "quiet streams")
    assert len(found) == 21
    assert found[-1].found == "and 30 streams more"


def test_the_items_of_a_bounded_number_of_streams_are_read_the_suspect_ones_first() -> None:
    table = with_streams(30)
    commit(table, entry(20, 30, time=NOW), stream(29))
    table.requests.clear()
    report = health(table, bounds=LookBounds(max_looks=5))
    assert about(report, "unexplained gaps")[0].stream == stream(29)
    (looked,) = about(report, "streams looked at")
    assert (looked.level, looked.found) == (HealthLevel.INFO, "the heads of 30 streams, and the items of 5")
    assert table.requests["BatchGetItem"] == 1
    assert table.requests["Query"] < 20


def test_a_look_ends_when_its_time_is_over() -> None:
    report = health(with_streams(30), bounds=LookBounds(seconds=0.0))
    (looked,) = about(report, "streams looked at")
    assert looked.found == "the heads of 30 streams, and the items of 1"


def test_streams_past_the_most_are_told_as_not_looked_at() -> None:
    report = health(with_streams(5), max_streams=4)
    assert any(one.found.startswith("there are more than 4 streams") for one in about(report, "streams looked at"))
    assert (report.streams, report.looked_at_streams) == (5, 4)


def test_a_table_that_does_not_answer_is_bad_and_hides_nothing_else() -> None:
    class Silent(MemoryTable):
        def streams(self, *_: object) -> Any:
            raise UnavailableError("no answer")

    report = health(Silent())
    (one,) = about(report, "streams looked at")
    assert (one.level, one.found) == (HealthLevel.BAD, "no answer")
    assert about(report, "a rule sends events to the queue")


def test_dead_letters_are_told_one_by_one_with_what_to_do_and_stay() -> None:
    def diagnosis(message: Any) -> LetterCause:
        action = LetterAction.DISCARD if message.body == "bad" else LetterAction.REDRIVE
        return LetterCause(f"because {message.body}", action, stream(1))

    queue = FakeQueue("good", "bad", *("more" for _ in range(40)))
    report = health(with_streams(1), letters=queue, letter_diagnosis=diagnosis)
    found = about(report, "dead letter")
    assert len(found) == 20
    assert found[0].todo == "coldstream dead-letters redrive 00000001-0000"
    assert found[1].todo == "coldstream dead-letters discard 00000002-0000"
    assert (found[1].found, found[1].stream) == (f"{stream(1)}: because bad", stream(1))
    assert len(queue.messages) == 42
    assert not queue.hidden


def test_a_queue_that_does_not_answer_is_not_asked() -> None:
    class Gone(FakeQueue):
        def receive(self, *, hidden_s: int) -> Any:
            raise UnavailableError("no answer")

    report = health(with_streams(1), letters=Gone(), letter_diagnosis=lambda _: LetterCause("", LetterAction.DISCARD))
    assert about(report, "dead letter")[0].level is HealthLevel.NOT_ASKED


def test_an_agent_that_is_away_and_one_that_lags_are_told() -> None:
    def away() -> AgentStatus:
        raise UnavailableError("connection refused")

    late = agent_status(stream_status(oldest_unarchived_at=TimestampMs(NOW - 10_000_000)))
    report = health(with_streams(1), agents={"http://a:1": away, "http://b:1": lambda: late})
    agents = [one for one in report.findings if one.part is ArchivePart.AGENTS]
    assert [(one.level, one.found.split(",")[0]) for one in agents] == [
        (HealthLevel.WARN, "node-1: orders in vhost /: 10000 s behind"),
        (HealthLevel.NOT_ASKED, "connection refused"),
    ]


def test_every_command_that_a_finding_names_exists() -> None:
    table = with_streams(3, time=1000)
    commit(table, entry(20, 30, time=1000), stream(0))
    record_missing(table, stream(1), Loss(Offset(10), Offset(12), "full", NOW))
    put_hold(table, stream(2).incarnation, 0, None)
    queue = FakeQueue("letter")
    report = health(table, letters=queue, letter_diagnosis=lambda _: LetterCause("", LetterAction.REDRIVE), place=WHOLE)
    commands = [one.todo for one in report.findings if one.todo is not None and one.todo.startswith("coldstream ")]
    assert len(commands) > 4
    for command in commands:
        line = command.removeprefix("coldstream ").split(",")[0]
        assert problem_of(line) is None, command


def test_hostile_names_are_told_as_they_are_and_quoted_in_commands() -> None:
    table = MemoryTable()
    for one in hostile_streams():
        commit(table, entry(0, 10, time=1000), one)
    report = health(table, bounds=LookBounds(max_looks=1))
    assert report.streams == len(hostile_streams())


@pytest.mark.parametrize("order", [1, -1])
def test_the_lag_of_a_stream_is_that_of_the_agent_nearest_to_the_end(order: int) -> None:
    def away() -> AgentStatus:
        raise UnavailableError("connection refused")

    near = agent_status(stream_status(archived_to=Offset(1000)))
    far = agent_status(stream_status(), stream_status(incarnation=Incarnation("other"), oldest_unarchived_at=None))
    asks = [away, lambda: near, lambda: far][::order]
    assert known_lags(asks) == {
        stream_status().incarnation: KnownLag(100, 90_000),
        Incarnation("other"): KnownLag(400, None),
    }
