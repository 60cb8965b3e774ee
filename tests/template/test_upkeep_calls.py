"""The functions of the upkeep work on an emulated AWS: their roles allow every call that they make, and no other.

Each is called as its schedule calls it, with something to do in each of its branches.
"""

from __future__ import annotations

import io
from types import ModuleType
from typing import Any, cast
from zlib import crc32

import pytest

from coldstream.archive.missing import record_missing
from coldstream.erase.resume import LEAST_AGE_MS
from coldstream.erase.run import Eraser
from coldstream.errors import CorruptionError, UnavailableError
from coldstream.garbage.kinds import DAY_MS
from coldstream.lifecycle.deletion import delete_stream
from coldstream.lifecycle.holds import put_hold, release_hold
from coldstream.lifecycle.policies import set_policy
from coldstream.lifecycle.prefix import remove_prefix
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.truncation import up_to_offset
from coldstream.manifest.appender import WalKind, WalPlace
from coldstream.manifest.appending import plan_close, plan_create, plan_open
from coldstream.manifest.entry import Encoding, Loss, StorageClass
from coldstream.manifest.policy import Policy
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.objects import S3Objects
from coldstream.store.span_object import LoggedRun, span_object
from coldstream.store.table import DynamoTable
from coldstream.store.wal_object import NONCE_BYTES, WalChunk, wal_object
from coldstream.store.wal_window import REACH
from coldstream.streams.wal.s3_store import S3WalStore
from coldstream.units import Epoch, Offset, TimestampMs, now_ms
from tests.erase.archived import MessageArchive
from tests.erase.samples import between
from tests.support.archive import STREAM
from tests.support.calls import recorded_calls
from tests.support.cloudformation import DELETING, Stack
from tests.support.functions import FunctionContext, load_function
from tests.support.iam import Request
from tests.support.permitted import LAMBDAS, arns_of, never_used, refused

GONE = StreamId("/", "gone", Incarnation("__gone_1763700000000000009"))
FRAGMENTS = 4
FINISHING = {"dynamodb:UpdateItem", "dynamodb:ConditionCheckItem", "dynamodb:DeleteItem"}
"""What ends a compaction that died, which removals and erasures do first: `lifecycle.unfinished`. Not done here."""


class Upkeep:
    """An archive on the emulated AWS, AWS's clock, which a test moves, and the functions."""

    def __init__(self, stack: Stack, table: str, objects: S3Objects, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stack, self.objects, self.table = stack, objects, DynamoTable(table)
        self.keys = Keys(stack.parameters["Prefix"])
        self.later_ms = 0
        self._patch = monkeypatch
        monkeypatch.setattr(S3Objects, "clock", property(lambda _: self.now))
        monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)
        for name, value in {
            "COLDSTREAM_BUCKET": objects.bucket,
            "COLDSTREAM_TABLE": table,
            "COLDSTREAM_PREFIX": self.keys.prefix,
            "COLDSTREAM_RETENTION": "delete",
            "COLDSTREAM_SWEEP": "delete",
            "COLDSTREAM_GARBAGE": "delete",
        }.items():
            monkeypatch.setenv(name, value)

    def now(self) -> TimestampMs:
        return TimestampMs(now_ms() + self.later_ms)

    @property
    def stores(self) -> LifecycleStores:
        return LifecycleStores.open(self.table, self.objects, self.keys, grace_ms=1000)

    def archive(self, stream: StreamId, *encodings: Encoding) -> MessageArchive:
        """Archive a fragment of each of these encodings."""
        made = MessageArchive(stream, keys=self.keys)
        made.table, made.objects = cast("MemoryTable", self.table), cast("MemoryObjects", self.objects)
        for encoding in encodings:
            made.add(4, encoding=encoding)
        self.stores.control.write_stream(stream)
        return made

    def put(self, key: str) -> str:
        self.objects.put_new(key, io.BytesIO(b"bytes"), size_bytes=5, crc32=crc32(b"bytes"))
        return key

    def log(self, stream: StreamId, *, at: int = 1) -> str:
        """Put an object with a chunk of the stream into a recovery log; return its key."""
        key = self.keys.span("node-1", TimestampMs(at))
        self.objects.put(key, span_object([LoggedRun(stream, Offset(0), Offset(1), b"a chunk")]))
        return key

    def litter(self, stream: StreamId) -> list[str]:
        """Leave objects of all kinds that no entry names, with an unfinished upload; return their keys."""
        incarnation = stream.incarnation
        quarantined = self.keys.quarantined(incarnation, Offset(7), "etag")
        left = [
            self.keys.fragment(incarnation, Offset(0), 9),
            self.keys.staged(incarnation, Offset(3), Offset(5)),
            quarantined,
            f"{quarantined}.json",
        ]
        for key in left[:2]:
            upload_id = self.objects.create_upload(key)
            self.objects.put_part(key, upload_id, 1, b"part", crc32=crc32(b"part"))
        return [self.put(key) for key in left]

    def leave_a_log(self) -> list[str]:
        """Leave the write-ahead log of a process that died, whose stream was closed; return its keys."""
        place = WalPlace(WalKind.S3, "dead", 1)
        created = plan_create(GONE, self.now(), first=Offset(0), properties={})
        opened = plan_open(created.head, place, self.now())
        for change in (created, opened, plan_close(opened.head, Epoch(1), self.now())):
            self.table.apply(change)
        store = S3WalStore(self.objects, self.keys)
        for sequence in range(REACH + 4):
            batch = WalChunk(GONE.incarnation, Epoch(1), Offset(sequence), Offset(sequence + 1), b"batch")
            store.create(place, sequence, wal_object(bytes(NONCE_BYTES), [batch]))
        return [self.keys.wal_object("dead", 1, sequence) for sequence in range(REACH + 4)]

    def call(self, function: str, event: dict[str, Any] | None = None) -> Any:
        return self.load(function).lambda_handler(event or {}, FunctionContext(function))

    def load(self, function: str) -> ModuleType:
        """Load a function anew: in a new environment of Lambda's."""
        return load_function(function)

    def recorded(self) -> Any:
        return recorded_calls(arns_of(self.stack))

    def check(self, role: str, requests: list[Request], unused: set[str] | None = None) -> None:
        """Check that a role allows what was asked for, and nothing else."""
        assert refused(self.stack, role, requests) == []
        assert never_used(self.stack, role, requests) == LAMBDAS | (unused or set())


@pytest.fixture
def upkeep(table_name: str, s3_locking: S3Objects, monkeypatch: pytest.MonkeyPatch) -> Upkeep:
    """On a bucket with versions and Object Lock."""
    return Upkeep(Stack(**DELETING), table_name, s3_locking, monkeypatch)


def test_retention_may_make_every_call_that_it_makes(upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldstream.lifecycle.classes.MIN_OBJECT_BYTES", 1)
    archive = upkeep.archive(STREAM, *[Encoding.IDENTITY] * FRAGMENTS)
    last = archive.log[-1].object_bytes + archive.log[-2].object_bytes
    cold = StorageClass.STANDARD_IA
    set_policy(upkeep.stores, Policy("all", "*/*", max_bytes=last, storage_class=cold, storage_class_age_ms=0))
    with upkeep.recorded() as requests:
        with monkeypatch.context() as patch:
            patch.setattr(S3Objects, "copy_part", unavailable)
            with pytest.raises(UnavailableError):
                upkeep.call("retention")
        summary = upkeep.call("retention")
    assert summary["moved_objects"] == 2
    assert {entry.storage_class for entry in archive.log} == {cold}
    upkeep.check("RetentionRole", requests, {"dynamodb:ConditionCheckItem"})


@pytest.mark.parametrize("function", ["retention", "sweep", "garbage", "erase"])
def test_without_its_parameter_a_function_needs_no_right_to_change_anything(
    upkeep: Upkeep, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = upkeep.archive(STREAM, *[Encoding.IDENTITY] * FRAGMENTS)
    remove_prefix(upkeep.stores, STREAM.incarnation, up_to_offset(archive.log[1].first_offset), why="", by="")
    upkeep.litter(STREAM)
    set_policy(upkeep.stores, Policy("all", "*/*", max_age_ms=0))
    upkeep.later_ms = 60 * DAY_MS
    by_default = Stack()
    for name in ("Retention", "Sweep", "Garbage"):
        monkeypatch.setenv(f"COLDSTREAM_{name.upper()}", by_default.parameters[name])
    with upkeep.recorded() as requests:
        upkeep.call(function)
    assert refused(by_default, f"{function.title()}Role", requests) == []


def test_the_sweep_may_make_every_call_that_it_makes(upkeep: Upkeep) -> None:
    archive, gone = upkeep.archive(STREAM, *[Encoding.IDENTITY] * FRAGMENTS), upkeep.archive(GONE, Encoding.IDENTITY)
    before = [entry.key for entry in archive.log]
    hold = put_hold(
        upkeep.stores, STREAM.incarnation, first_offset=archive.log[-1].first_offset, next_offset=None, reason="", by=""
    )
    eraser = Eraser(upkeep.stores)
    remove_prefix(upkeep.stores, STREAM.incarnation, up_to_offset(archive.log[1].first_offset), why="", by="")
    erasure, scope, _ = eraser.begin(
        STREAM, between(archive.log[0].first_offset, archive.log[0].next_offset), reason="", by=""
    )
    eraser.run(STREAM, erasure, scope.selection)
    gone_before = [entry.key for entry in gone.log]
    left = upkeep.litter(GONE)
    logged = upkeep.log(STREAM)
    loss = Loss(Offset(1000), Offset(1001), "lost", upkeep.now())
    upkeep.stores.control.write_loss(GONE.incarnation, loss)
    record_missing(upkeep.table, GONE, loss, lambda *_: None)
    delete_stream(upkeep.stores, GONE.incarnation, grace_ms=0, by="")
    notes = [one.key for one in upkeep.objects.listed("") if "/control/floor." in one.key or "/erasure." in one.key]
    upkeep.objects.delete_many(notes)  # as if the runs that removed had died before they wrote them
    with upkeep.recorded() as requests:
        for _ in range(5):
            upkeep.later_ms += 15 * DAY_MS
            upkeep.call("sweep")
        release_hold(upkeep.stores, STREAM.incarnation, hold.id, by="")
        upkeep.call("sweep")
    head = upkeep.table.head(GONE.incarnation)
    assert head is not None
    assert head.purged_at is not None
    versions = {one.key for one in upkeep.objects.versions("") if not one.is_delete_marker}
    assert not versions & {*gone_before, *left}
    assert logged in versions  # of another stream
    assert before[0] in versions  # the bucket's lifecycle rule removes it
    upkeep.check("SweepRole", requests, FINISHING - {"dynamodb:DeleteItem"})


def test_garbage_collection_may_make_every_call_that_it_makes(upkeep: Upkeep) -> None:
    upkeep.archive(STREAM, Encoding.IDENTITY)
    left = upkeep.litter(STREAM) + upkeep.leave_a_log()[:-REACH]
    upkeep.later_ms = 60 * DAY_MS
    with upkeep.recorded() as requests:
        report = upkeep.call("garbage")
    assert report["deletions"]["objects"] == len(left)
    # For a fence that somebody raised and did not note, and a store that knows no conditional deletion.
    upkeep.check("GarbageRole", requests, {"s3:GetObject"})


def test_the_scrub_may_make_every_call_that_it_makes(upkeep: Upkeep) -> None:
    archive = upkeep.archive(STREAM, *[Encoding.IDENTITY] * FRAGMENTS)
    upkeep.archive(GONE, Encoding.ZSTD_SEEKABLE)
    remove_prefix(upkeep.stores, STREAM.incarnation, up_to_offset(archive.log[1].first_offset), why="", by="")
    delete_stream(upkeep.stores, GONE.incarnation, grace_ms=0, by="")
    upkeep.objects.delete(archive.log[0].key)
    with upkeep.recorded() as requests:
        for deep in (False, True):
            assert upkeep.call("scrub", {"deep": deep})["complete"]
    upkeep.check("ScrubRole", requests)


def test_the_erasure_may_make_every_call_that_it_makes(upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = upkeep.archive(STREAM, Encoding.IDENTITY, Encoding.ZSTD_SEEKABLE)
    Eraser(upkeep.stores).begin(STREAM, between(0, archive.log[-1].next_offset), reason="", by="")
    upkeep.later_ms = LEAST_AGE_MS
    upkeep.log(GONE)
    upkeep.objects.delete(upkeep.log(STREAM, at=2))
    with upkeep.recorded() as requests:
        with monkeypatch.context() as patch:
            patch.setattr("coldstream.erase.rewrite.check_erased", damaged)
            with pytest.raises(CorruptionError):
                upkeep.call("erase")
        with monkeypatch.context() as patch:
            patch.setattr(S3Objects, "complete_upload", unavailable)
            with pytest.raises(UnavailableError):
                upkeep.call("erase")
        assert upkeep.call("erase")["done"] == 1
    upkeep.check("EraseRole", requests, FINISHING - {"dynamodb:ConditionCheckItem"})


def unavailable(*_: Any, **__: Any) -> Any:
    raise UnavailableError("no answer")


def damaged(*_: Any, **__: Any) -> Any:
    raise CorruptionError("key", 0, "damaged", expected=1, found=2)
