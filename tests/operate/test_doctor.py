"""What the doctor finds, and the command that it names: stores in memory, and a stack that answers as it is told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from coldstream.archive.missing import record_missing
from coldstream.errors import AccessDeniedError, ColdstreamError, UnavailableError
from coldstream.garbage.cursor import BY_COMMAND, BY_SCHEDULE, GarbageCursor
from coldstream.garbage.kinds import DAY_MS
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.run import GarbageCollector
from coldstream.manifest.appender import Appender, Opening, WalKind, WalPlace
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.entry import Loss, Quarantine
from coldstream.manifest.stream import StreamId
from coldstream.operate.alarm_commands import ALARM_COMMANDS, FALLBACK, command_for
from coldstream.operate.diagnosis import ArchivePart, Diagnosis, DiagnosisVerdict
from coldstream.operate.doctor import Doctor, StackPlace
from coldstream.operate.stack_port import (
    BucketConfiguration,
    EventRule,
    QueueState,
    RingingAlarm,
    TableConfiguration,
)
from coldstream.operate.stream_health import command_arguments
from coldstream.store.keys import Keys
from coldstream.store.ports import BucketCapabilities
from coldstream.units import Epoch, Offset, TimestampMs
from tests.support.archive import NOW, ChunkArchive
from tests.support.scrubbing import LATER, scrub, small_archive

PLACE = StackPlace("bucket", "table", "bus", "arn:aws:sqs:eu-central-1:1:upload", "https://sqs/letters", "tide")
ABSENT = ColdstreamError("the service is not implemented here")


@dataclass
class ToldStack:
    """Answers as it is told; an exception is raised."""

    answers: dict[str, Any] = field(default_factory=dict)

    def _answer(self, name: str, default: Any) -> Any:
        answer = self.answers.get(name, default)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def bucket(self, name: str) -> Any:
        return self._answer("bucket", BucketConfiguration("aws:kms", aborts_uploads=True))

    def table(self, name: str) -> Any:
        return self._answer("table", TableConfiguration("ACTIVE", ("by-time",), has_backups=True, is_protected=True))

    def rules(self, bus: str) -> Any:
        return self._answer("rules", (EventRule("rolled", is_enabled=True, targets=1),))

    def queue(self, address: str) -> Any:
        name = address.rpartition(":" if address.startswith("arn:") else "/")[2]
        return self._answer(name, QueueState(name, 0, 0))

    def oldest_message_s(self, queue: str) -> Any:
        return self._answer("oldest", None)

    def ringing(self, stack: str) -> Any:
        return self._answer("ringing", ())

    def has_alarms(self, stack: str) -> Any:
        return self._answer("has_alarms", True)

    def newest_fragment_s(self, namespace: str) -> Any:
        return self._answer("newest", 60.0)


def examine(
    archive: ChunkArchive | None = None,
    place: StackPlace = PLACE,
    *,
    deep: bool = False,
    later_ms: int = 0,
    **answers: Any,
) -> list[Diagnosis]:
    archive = archive or small_archive()
    now = TimestampMs(LATER + later_ms)
    doctor = Doctor(place, archive.table, archive.objects, Keys(), ToldStack(answers), lambda: now, deep=deep)
    return list(doctor.examine())


def of(found: list[Diagnosis], part: ArchivePart, *verdicts: DiagnosisVerdict) -> list[Diagnosis]:
    return [one for one in found if one.part is part and (not verdicts or one.verdict in verdicts)]


def whole() -> ChunkArchive:
    archive = small_archive()
    record_missing(archive.table, archive.stream, Loss(Offset(30), Offset(40), "given up", NOW))
    return archive


def test_a_healthy_archive_has_nothing_bad() -> None:
    archive = whole()
    scrub(archive, repair=True)
    scrub(archive)
    found = examine(archive)
    assert not [one for one in found if one.verdict is DiagnosisVerdict.BAD]
    assert {one.part for one in found} == set(ArchivePart) - {ArchivePart.SETTINGS, ArchivePart.AGENTS}


@pytest.mark.parametrize(
    ("answers", "part", "todo"),
    [
        ({"bucket": BucketConfiguration(None, aborts_uploads=True)}, ArchivePart.BUCKET, "deploy the template"),
        ({"bucket": BucketConfiguration("AES256", aborts_uploads=False)}, ArchivePart.BUCKET, "AbortIncomplete"),
        ({"table": TableConfiguration("ACTIVE", (), True, True)}, ArchivePart.TABLE, "by-time"),
        ({"table": TableConfiguration("ACTIVE", ("by-time",), False, True)}, ArchivePart.TABLE, "continuous-backups"),
        ({"rules": ()}, ArchivePart.EVENTS, "enable-rule"),
        ({"rules": (EventRule("r", False, 1),)}, ArchivePart.EVENTS, "enable-rule"),
        ({"rules": (EventRule("r", True, 0),)}, ArchivePart.EVENTS, "enable-rule"),
        ({"letters": QueueState("letters", 2, 1)}, ArchivePart.QUEUES, "coldstream dead-letters list"),
        ({"upload": QueueState("upload", 9, 0), "oldest": 7200.0}, ArchivePart.QUEUES, "upload function"),
        ({"ringing": (RingingAlarm("tide-DamageAlarm-1X", "1 >= 1"),)}, ArchivePart.ALARMS, "coldstream scrub"),
        ({"newest": None}, ArchivePart.ALARMS, "coldstream agent status"),
    ],
)
def test_what_is_wrong_with_the_stack_comes_with_what_to_do(
    answers: dict[str, Any], part: ArchivePart, todo: str
) -> None:
    (one,) = [
        one
        for one in of(examine(**answers), part, DiagnosisVerdict.BAD, DiagnosisVerdict.WARN)
        if "versions" not in one.what
    ]
    assert todo in str(one.todo)


def test_a_recovery_log_that_nobody_deletes_is_told_with_its_node() -> None:
    archive = whole()
    keys = Keys()
    assert not of(examine(archive), ArchivePart.AGENTS, *DiagnosisVerdict)
    for cluster, node, age_ms in (("", "one", 0), ("north", "two", 0), ("", "one", DAY_MS)):
        key = replace(keys, cluster=Cluster(cluster)).span(node, TimestampMs(LATER - age_ms))
        archive.objects.put(key, b"of which nothing is read")
    archive.objects.put("spans/something else", b"")
    (fine,) = of(examine(archive), ArchivePart.AGENTS, *DiagnosisVerdict)
    assert (fine.verdict, fine.found) == (DiagnosisVerdict.OK, "3 objects of 2 nodes")
    archive.objects.put(replace(keys, cluster=Cluster("north")).span("two", TimestampMs(LATER - 3 * DAY_MS)), b"")
    (old,) = of(examine(archive), ArchivePart.AGENTS, *DiagnosisVerdict)
    assert old.verdict is DiagnosisVerdict.WARN
    assert "1 of 2 nodes is old: two has an object of" in old.found
    assert "coldstream recover --cluster north" in str(old.todo)


@pytest.mark.parametrize(
    ("object_lock", "verdict", "told"),
    [
        (None, DiagnosisVerdict.UNKNOWN, "s3:GetBucketObjectLockConfiguration"),
        (False, DiagnosisVerdict.OK, "other programs may delete what is held"),
        (True, DiagnosisVerdict.OK, "Object Lock on"),
    ],
)
def test_whether_holds_reach_object_lock_is_told(
    object_lock: bool | None,  # noqa: FBT001  a parameter of the test
    verdict: DiagnosisVerdict,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archive = small_archive()
    monkeypatch.setattr(archive.objects, "capabilities", lambda: BucketCapabilities(object_lock=object_lock))
    (one,) = (one for one in examine(archive) if "Object Lock" in one.what)
    assert (one.verdict, told in f"{one.found} {one.todo}") == (verdict, True)


@pytest.mark.parametrize("error", [ABSENT, UnavailableError("no answer")])
def test_a_service_that_is_not_there_is_unknown_and_stops_nothing_else(error: ColdstreamError) -> None:
    names = ("bucket", "table", "rules", "upload", "letters", "ringing", "newest", "oldest")
    found = examine(**dict.fromkeys(names, error))
    assert of(found, ArchivePart.EVENTS, DiagnosisVerdict.UNKNOWN)
    assert len(of(found, ArchivePart.QUEUES, DiagnosisVerdict.UNKNOWN)) == 2
    assert of(found, ArchivePart.UPKEEP)
    assert not [one for one in found if one.verdict is DiagnosisVerdict.BAD]


def test_a_right_that_is_missing_is_named() -> None:
    (one,) = of(examine(ringing=AccessDeniedError("no")), ArchivePart.ALARMS, DiagnosisVerdict.UNKNOWN)
    assert "cloudwatch:DescribeAlarms" in str(one.todo)


def test_without_the_right_to_read_the_table_the_archive_cannot_be_operated(monkeypatch: pytest.MonkeyPatch) -> None:
    archive = small_archive()

    def refuse(*_: object) -> None:
        raise AccessDeniedError("no")

    monkeypatch.setattr(archive.table, "head", refuse)
    (one, *_) = of(examine(archive), ArchivePart.TABLE)
    assert (one.verdict, "dynamodb:GetItem" in str(one.todo)) == (DiagnosisVerdict.BAD, True)


def test_what_nobody_told_is_unknown_and_says_which_setting() -> None:
    found = examine(place=StackPlace("bucket", "table"))
    unknown = [one.found for one in found if one.verdict is DiagnosisVerdict.UNKNOWN]
    for setting in ("COLDSTREAM_EVENT_BUS", "COLDSTREAM_UPLOAD_QUEUE_ARN", "COLDSTREAM_DEAD_LETTER_QUEUE", "stack"):
        assert any(setting in one for one in unknown)


def test_the_troubles_of_streams_are_told_with_a_command_for_each() -> None:
    archive = small_archive()
    bad = Quarantine(Offset(100), Offset(110), "bad", NOW, "quarantine/x", '"etag"')
    record_missing(archive.table, archive.stream, bad)
    state = archive.table._partitions[archive.stream.incarnation]
    old = {key: replace(one, due_at=TimestampMs(NOW - 10**9)) for key, one in state.tombstones.items()}
    archive.table._partitions[archive.stream.incarnation] = replace(
        state,
        head=replace(state.head, compacting=Offset(20)),
        tombstones={(one.due_at, one.key): one for one in old.values()},
    )
    found = {one.what: one.todo for one in of(examine(archive), ArchivePart.STREAMS)}
    assert found == {
        "unfinished compaction": "coldstream compact orders",
        "quarantine": "coldstream quarantine list orders",
        "overdue sweep": "coldstream sweep",
        "unexplained gaps": "coldstream describe orders",
    }


@pytest.mark.parametrize(
    ("kind", "is_told"), [(WalKind.S3, False), (WalKind.EXPRESS, True), (WalKind.DISK, True), (WalKind.MEMORY, True)]
)
def test_a_direct_stream_whose_batches_only_another_process_can_recover_is_told(
    kind: WalKind,
    is_told: bool,  # noqa: FBT001
) -> None:
    archive = small_archive()
    state = archive.table._partitions[archive.stream.incarnation]
    openings = tuple(Opening(Epoch(epoch), WalPlace(kind, f"host-{epoch}", 1)) for epoch in (1, 2))
    for count in (1, 2):
        head = replace(state.head, appender=Appender(Epoch(count), openings[:count]))
        archive.table._partitions[archive.stream.incarnation] = replace(state, head=head)
        found = {one.what: one.found for one in of(examine(archive), ArchivePart.STREAMS)}
        assert ("unrecovered batches" in found) is (is_told and count == 2)
    assert f"{kind} host-1/1" in found.get("unrecovered batches", "") or not is_told


def test_the_last_scrub_is_told_with_its_damages() -> None:
    archive = small_archive()
    archive.objects.objects[archive.table.log_end(archive.stream.incarnation, 1).entries[0].key] += b"?"
    scrub(archive)
    (one,) = of(examine(archive), ArchivePart.UPKEEP, DiagnosisVerdict.BAD)
    assert "1 ObjectSizeDiffers" in one.found
    assert one.todo == "coldstream scrub --restart"


def test_a_deeper_look_scrubs() -> None:
    archive = small_archive()
    archive.objects.objects[archive.table.log_end(archive.stream.incarnation, 1).entries[0].key] += b"?"
    (one,) = of(examine(archive, deep=True), ArchivePart.UPKEEP, DiagnosisVerdict.BAD)
    assert "1 ObjectSizeDiffers" in one.found


def test_the_last_pass_over_the_bucket_tells_the_orphans_that_are_left() -> None:
    archive = small_archive()
    archive.objects.clock = lambda: TimestampMs(LATER - 2 * DAY_MS)
    archive.objects.put(Keys().fragment(archive.stream.incarnation, Offset(3), 9), b"orphan")

    def told(*, later_ms: int = 0) -> Diagnosis:
        found = of(examine(archive, later_ms=later_ms), ArchivePart.UPKEEP)
        return next(one for one in found if "orphan" in one.what)

    def collect(cursor: str, ended_at: int, options: GarbageOptions) -> None:
        clock, kept = lambda: TimestampMs(ended_at), GarbageCursor(archive.table, cursor)
        GarbageCollector(archive.table, archive.objects, Keys(), clock, kept).run(options)

    assert "no pass has ended" in told().found
    collect(BY_SCHEDULE, LATER, GarbageOptions(max_objects=1))
    assert "under way" in told().found
    collect(BY_SCHEDULE, LATER, GarbageOptions())
    assert (told().verdict, told().todo) == (DiagnosisVerdict.WARN, "coldstream garbage --delete")
    assert "1 orphans that are left, of 6 bytes" in told().found
    collect(BY_COMMAND, LATER + 1, GarbageOptions(delete=True))  # the later pass counts, whoever made it
    assert told().verdict is DiagnosisVerdict.OK
    assert told(later_ms=31 * DAY_MS).verdict is DiagnosisVerdict.WARN


def test_a_command_for_a_stream_names_its_vhost_and_is_quoted_for_a_shell() -> None:
    stream = StreamId("a b", "$(orders)", small_archive().stream.incarnation)
    assert command_arguments(stream) == "'$(orders)' --vhost 'a b'"


def test_each_alarm_has_its_command() -> None:
    assert command_for("tide-QuietAlarm-ABC", "tide") == "coldstream agent status, on each broker"
    assert command_for("tide-ScrubErrorsAlarm-ABC", "tide") == "aws logs tail /aws/lambda/tide-scrub --since 1d"
    assert command_for("tide-NewAlarm-ABC", "tide") == FALLBACK
    assert all("STACK" not in command_for(name, "tide") for name in ALARM_COMMANDS)


def test_a_stack_without_alarms_is_unknown_and_not_well() -> None:
    (alarms,) = [one for one in of(examine(has_alarms=False), ArchivePart.ALARMS) if one.what == "no alarm rings"]
    assert (alarms.verdict, alarms.todo) == (DiagnosisVerdict.UNKNOWN, "is that its name? --stack")
