"""`coldstream doctor`: one look at everything around an archive, and what to do next.

    for diagnosis in Doctor(place, table, objects, keys, stack).examine():
        ...

It changes nothing. What is not there, as most of AWS on a laptop, is unknown, and stops nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from coldstream.errors import ColdstreamError
from coldstream.garbage.cursor import BY_COMMAND, BY_SCHEDULE, GarbageCursor
from coldstream.manifest.stream import Incarnation
from coldstream.operate.alarm_commands import command_for
from coldstream.operate.diagnosis import ArchivePart, Diagnosis, DiagnosisVerdict, diagnose
from coldstream.operate.recovery_log_health import NONE, WHAT, recovery_log_health
from coldstream.operate.stack_port import StackServices
from coldstream.operate.stream_health import MAX_NAMED, StreamTrouble, stream_troubles
from coldstream.scrub.budget import Budget
from coldstream.scrub.position import PassPosition
from coldstream.scrub.run import Scrubber, ScrubOptions, cursor_name
from coldstream.store.keys import Keys
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.units import Offset, TimestampMs, format_timestamp

OLD_PASS_MS = 30 * 24 * 3600 * 1000
"""A pass of the scrub that began longer ago than this, and is not done, has too small a budget. A pass over the bucket
that ended longer ago says nothing of today."""

OLD_EVENT_S = 3600
BY_TIME = "by-time"

DEEP_BUDGET = Budget(requests=20_000, data_bytes=1 << 30, seconds=600)
"""Of the scrub that the doctor runs itself, if it is asked to look deeper."""


@dataclass(frozen=True, slots=True)
class StackPlace:
    """Where everything is: names and addresses, None for what nobody told."""

    bucket: str
    table: str
    bus: str | None = None
    upload_queue: str | None = None
    dead_letters: str | None = None
    stack: str | None = None


@dataclass(frozen=True, slots=True)
class Doctor:
    """Examines one archive. `now` is AWS's clock. With `deep`, scrubs a part of the archive, too."""

    place: StackPlace
    table: ManifestTable
    objects: ObjectStore
    keys: Keys
    stack: StackServices
    now: Callable[[], TimestampMs]
    deep: bool = False

    def examine(self, *, streams: bool = True) -> Iterator[Diagnosis]:
        """Yield what is found, part by part. It costs some twenty requests, and three or more for each stream.

        Without `streams`, no stream is looked at.
        """
        yield from self._bucket()
        yield from self._table()
        yield self._bus()
        yield from self._queues()
        yield from self._alarms()
        if streams:
            yield from self._streams()
        yield from self._recovery_logs()
        yield from self._upkeep()

    def _bucket(self) -> Iterator[Diagnosis]:
        part, name = ArchivePart.BUCKET, self.place.bucket
        nothing = self.keys.stream_note(Incarnation("__coldstream-doctor"))

        def can_list() -> Diagnosis:
            next(iter(self.objects.keys(nothing)), None)
            return Diagnosis(part, "it can be listed", DiagnosisVerdict.OK, f"bucket {name}")

        def can_read() -> Diagnosis:
            self.objects.info(nothing)
            return Diagnosis(part, "its objects can be read", DiagnosisVerdict.OK, f"bucket {name}")

        def keeps_versions() -> Diagnosis:
            what, found = "it keeps versions of what is deleted", self.objects.capabilities()
            if found.versioned is None:
                return Diagnosis(part, what, DiagnosisVerdict.UNKNOWN, "refused", "grant s3:GetBucketVersioning")
            verdict = DiagnosisVerdict.OK if found.versioned else DiagnosisVerdict.WARN
            todo = None if found.versioned else "deploy the template: without versions, nothing deleted comes back"
            return Diagnosis(part, what, verdict, f"versions {'on' if found.versioned else 'off'}", todo)

        def locks() -> Diagnosis:
            what, is_on = "holds reach S3 Object Lock", self.objects.capabilities().object_lock
            if is_on is None:
                todo = "grant s3:GetBucketObjectLockConfiguration: until then no hold of this caller's is put there"
                return Diagnosis(part, what, DiagnosisVerdict.UNKNOWN, "refused", todo)
            found = "Object Lock on" if is_on else "Object Lock off: other programs may delete what is held"
            return Diagnosis(part, what, DiagnosisVerdict.OK, found)

        def is_set_up() -> Diagnosis:
            what, found = "it is encrypted, and drops unfinished uploads", self.stack.bucket(name)
            rule = "on" if found.aborts_uploads else "missing"
            text = f"encryption {found.encryption or 'off'}, rule for unfinished uploads {rule}"
            is_right = found.encryption is not None and found.aborts_uploads
            todo = None if is_right else "deploy the template, or set the rule AbortIncompleteMultipartUpload"
            return Diagnosis(part, what, DiagnosisVerdict.OK if is_right else DiagnosisVerdict.WARN, text, todo)

        listed = diagnose(part, "it can be listed", can_list, action="s3:ListBucket", needed=True)
        yield listed
        if listed.verdict is DiagnosisVerdict.BAD:
            return  # each of the others would wait for the same answer
        yield diagnose(part, "its objects can be read", can_read, action="s3:GetObject", needed=True)
        yield diagnose(part, "it keeps versions of what is deleted", keeps_versions, action="s3:GetBucketVersioning")
        yield diagnose(part, "holds reach S3 Object Lock", locks, action="s3:GetBucketObjectLockConfiguration")
        action = "s3:GetEncryptionConfiguration and s3:GetLifecycleConfiguration"
        yield diagnose(part, "it is encrypted, and drops unfinished uploads", is_set_up, action=action)

    def _table(self) -> Iterator[Diagnosis]:
        part, name = ArchivePart.TABLE, self.place.table

        def can_get() -> Diagnosis:
            self.table.head(Incarnation("__coldstream-doctor"))
            return Diagnosis(part, "its items can be read", DiagnosisVerdict.OK, f"table {name}")

        def can_query() -> Diagnosis:
            self.table.log_before(Incarnation("__coldstream-doctor"), Offset(0), 1)
            return Diagnosis(part, "it can be queried", DiagnosisVerdict.OK, f"table {name}")

        def is_set_up() -> Diagnosis:
            what, found = "it has its index and backups", self.stack.table(name)
            if found.status not in {"ACTIVE", "UPDATING"} or BY_TIME not in found.indexes:
                text = f"status {found.status}, indexes {', '.join(found.indexes) or 'none'}"
                return Diagnosis(
                    part, what, DiagnosisVerdict.BAD, text, "deploy the template: lookups by time need `by-time`"
                )
            is_safe = found.has_backups and found.is_protected
            text = (
                f"point-in-time recovery {'on' if found.has_backups else 'off'},"
                f" deletion protection {'on' if found.is_protected else 'off'}"
            )
            todo = None if is_safe else "deploy the template, or aws dynamodb update-continuous-backups"
            return Diagnosis(part, what, DiagnosisVerdict.OK if is_safe else DiagnosisVerdict.WARN, text, todo)

        got = diagnose(part, "its items can be read", can_get, action="dynamodb:GetItem", needed=True)
        yield got
        if got.verdict is DiagnosisVerdict.BAD:
            return
        yield diagnose(part, "it can be queried", can_query, action="dynamodb:Query", needed=True)
        action = "dynamodb:DescribeTable and dynamodb:DescribeContinuousBackups"
        yield diagnose(part, "it has its index and backups", is_set_up, action=action)

    def _bus(self) -> Diagnosis:
        part, what, bus = ArchivePart.EVENTS, "a rule sends events to the queue", self.place.bus
        if bus is None:
            return Diagnosis(
                part, what, DiagnosisVerdict.UNKNOWN, "COLDSTREAM_EVENT_BUS is not set", "set it, or --event-bus"
            )

        def ask() -> Diagnosis:
            rules = self.stack.rules(bus)
            text = ", ".join(f"{rule.name}, targets: {rule.targets}" for rule in rules if rule.is_enabled)
            is_right = any(rule.is_enabled and rule.targets for rule in rules)
            todo = None if is_right else f"aws events enable-rule --event-bus-name {bus} --name RULE, or deploy"
            return Diagnosis(
                part, what, DiagnosisVerdict.OK if is_right else DiagnosisVerdict.BAD, text or "no enabled rule", todo
            )

        return diagnose(part, what, ask, action="events:ListRules and events:ListTargetsByRule")

    def _queues(self) -> Iterator[Diagnosis]:
        part = ArchivePart.QUEUES

        def ask_upload(address: str) -> Diagnosis:
            state = self.stack.queue(address)
            try:
                oldest = self.stack.oldest_message_s(state.name)
            except ColdstreamError:
                oldest = None
            is_late = (oldest or 0) > OLD_EVENT_S
            age = "" if oldest is None else f", the oldest for {oldest:.0f} s"
            text = f"{state.waiting} wait{age}, {state.in_flight} are being handled"
            todo = "coldstream dead-letters list, then the log of the upload function" if is_late else None
            return Diagnosis(
                part, "events are handled", DiagnosisVerdict.BAD if is_late else DiagnosisVerdict.OK, text, todo
            )

        def ask_letters(address: str) -> Diagnosis:
            state = self.stack.queue(address)
            count = state.waiting + state.in_flight
            todo = "coldstream dead-letters list" if count else None
            verdict = DiagnosisVerdict.BAD if count else DiagnosisVerdict.OK
            return Diagnosis(part, "no event failed for good", verdict, f"{count} dead letters", todo)

        for what, address, ask, setting in (
            ("events are handled", self.place.upload_queue, ask_upload, "COLDSTREAM_UPLOAD_QUEUE_ARN"),
            ("no event failed for good", self.place.dead_letters, ask_letters, "COLDSTREAM_DEAD_LETTER_QUEUE"),
        ):
            if address is None:
                yield Diagnosis(
                    part, what, DiagnosisVerdict.UNKNOWN, f"{setting} is not set", "set it, from the stack's outputs"
                )
            else:
                yield diagnose(part, what, _bound(ask, address), action="sqs:GetQueueAttributes")

    def _alarms(self) -> Iterator[Diagnosis]:
        part, stack = ArchivePart.ALARMS, self.place.stack
        if stack is None:
            yield Diagnosis(part, "no alarm rings", DiagnosisVerdict.UNKNOWN, "no stack is named", "name it: --stack")
            return
        ringing: list[Diagnosis] = []

        def ask() -> Diagnosis:
            for alarm in self.stack.ringing(stack):
                todo = command_for(alarm.name, stack)
                ringing.append(Diagnosis(part, f"{alarm.name} rings", DiagnosisVerdict.BAD, alarm.reason, todo))
            if not ringing and not self.stack.has_alarms(stack):
                found, todo = f"stack {stack} has no alarms", "is that its name? --stack"
                return Diagnosis(part, "no alarm rings", DiagnosisVerdict.UNKNOWN, found, todo)
            return Diagnosis(part, "no alarm rings", DiagnosisVerdict.OK, f"stack {stack}")

        def ask_newest() -> Diagnosis:
            what, age = "agents announce, and fragments arrive", self.stack.newest_fragment_s(stack)
            if age is None:
                found, todo = "nothing was archived for a day", "coldstream agent status, on each broker"
                return Diagnosis(part, what, DiagnosisVerdict.WARN, found, todo)
            return Diagnosis(part, what, DiagnosisVerdict.OK, f"the last fragment {age:.0f} s ago")

        answer = diagnose(part, "no alarm rings", ask, action="cloudwatch:DescribeAlarms")
        yield from ringing or [answer]
        what = "agents announce, and fragments arrive"
        yield diagnose(part, what, ask_newest, action="cloudwatch:GetMetricStatistics")

    def _streams(self) -> Iterator[Diagnosis]:
        part = ArchivePart.STREAMS
        found: dict[str, list[StreamTrouble]] = defaultdict(list)

        def ask() -> Diagnosis:
            for trouble in stream_troubles(self.table, self.now()):
                found[trouble.kind].append(trouble)
            return Diagnosis(
                part, "nothing is unfinished, in quarantine or unexplained", DiagnosisVerdict.OK, "all streams"
            )

        what = "nothing is unfinished, in quarantine or unexplained"
        answer = diagnose(part, what, ask, action="dynamodb:Query", needed=True)
        if not found or answer.verdict is not DiagnosisVerdict.OK:
            yield answer
        for kind, troubles in found.items():
            for one in troubles[:MAX_NAMED]:
                yield Diagnosis(part, kind, DiagnosisVerdict.WARN, f"{one.stream}: {one.found}", one.todo)
            if len(troubles) > MAX_NAMED:
                yield Diagnosis(part, kind, DiagnosisVerdict.WARN, f"and {len(troubles) - MAX_NAMED} streams more")

    def _recovery_logs(self) -> Iterator[Diagnosis]:
        def ask() -> Diagnosis:
            return recovery_log_health(self.objects, self.keys, self.now())

        answer = diagnose(ArchivePart.AGENTS, WHAT, ask, action="s3:ListBucket")
        if answer.found != NONE:  # most archives have no quiet streams
            yield answer

    def _upkeep(self) -> Iterator[Diagnosis]:
        part = ArchivePart.UPKEEP
        if self.deep:
            yield diagnose(part, "no damage is found", self._scrubbed, action="what `coldstream scrub` needs")
        else:
            for is_deep in (False, True):
                what = "the last deep scrub found no damage" if is_deep else "the last scrub found no damage"
                ask = _bound(self._last_scrub, what, is_deep)
                yield diagnose(part, what, ask, action="dynamodb:GetItem")
        yield diagnose(part, "no orphan is known", self._last_garbage, action="dynamodb:GetItem")

    def _scrubbed(self) -> Diagnosis:
        scrubber = Scrubber(self.table, self.objects, self.keys, self.now)
        return _of_pass("no damage is found", scrubber.run(None, ScrubOptions(), DEEP_BUDGET).position, self.now())

    def _last_scrub(self, what: str, is_deep: bool) -> Diagnosis:  # noqa: FBT001  which of two
        name = cursor_name(None, deep=is_deep)
        saved = self.table.cursor(name)
        command = "coldstream scrub --deep" if is_deep else "coldstream scrub"
        if saved is None:
            verdict = DiagnosisVerdict.UNKNOWN if is_deep else DiagnosisVerdict.WARN
            return Diagnosis(ArchivePart.UPKEEP, what, verdict, "none has run yet", command)
        return _of_pass(what, PassPosition.from_bytes(saved, source=name), self.now())

    def _last_garbage(self) -> Diagnosis:
        part, what = ArchivePart.UPKEEP, "no orphan is known"
        cursors = [GarbageCursor(self.table, name) for name in (BY_SCHEDULE, BY_COMMAND)]
        ended = [last for cursor in cursors if (last := cursor.last_pass()) is not None]
        if not ended:
            reached = next((key for cursor in cursors if (key := cursor.reached()) is not None), None)
            found = "no pass has ended yet" if reached is None else f"the first pass is under way, at {reached}"
            return Diagnosis(part, what, DiagnosisVerdict.UNKNOWN, found, "coldstream garbage")
        last = max(ended, key=lambda one: one.ended_at)
        when = f"the pass that ended {format_timestamp(last.ended_at)}"
        if last.left:
            found = f"{when} found {last.left} orphans that are left, of {last.left_bytes} bytes"
            return Diagnosis(part, what, DiagnosisVerdict.WARN, found, "coldstream garbage --delete")
        if last.ended_at + OLD_PASS_MS <= self.now():
            return Diagnosis(part, what, DiagnosisVerdict.WARN, f"none, but {when} is old", "coldstream garbage")
        return Diagnosis(part, what, DiagnosisVerdict.OK, f"{when} left none")


def _of_pass(what: str, position: PassPosition, now: TimestampMs) -> Diagnosis:
    command = "coldstream scrub --deep" if position.deep else "coldstream scrub"
    when = f"{position.share:.0%} of the pass begun {format_timestamp(position.began_at)}"
    if position.counts:
        counts = ", ".join(f"{count} {damage}" for damage, count in sorted(position.counts.items()))
        return Diagnosis(ArchivePart.UPKEEP, what, DiagnosisVerdict.BAD, f"{counts}; {when}", f"{command} --restart")
    if position.ended_at is None and position.began_at + OLD_PASS_MS <= now:
        return Diagnosis(
            ArchivePart.UPKEEP,
            what,
            DiagnosisVerdict.WARN,
            f"no damage, but only {when}",
            f"{command}, on a larger budget",
        )
    return Diagnosis(ArchivePart.UPKEEP, what, DiagnosisVerdict.OK, f"no damage; {when}")


def _bound(ask: Callable[..., Diagnosis], *arguments: object) -> Callable[[], Diagnosis]:
    return lambda: ask(*arguments)
