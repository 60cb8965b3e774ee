from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from zlib import crc32

import pytest

from coldstream.archive.missing import record_missing
from coldstream.erase.copies import CopyKind, FoundCopies, find_copies
from coldstream.erase.run import Eraser, unfinished_erasures
from coldstream.errors import HeldError, OtherCopiesError
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.entry import Encoding, Hold, Quarantine
from coldstream.manifest.holding import plan_hold
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.control import MAX_NOTE_BYTES, ControlObjects
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.object_values import BucketCapabilities
from coldstream.store.ports import ListedObject
from coldstream.store.span_object import LoggedRun, span_object
from coldstream.units import Offset, TimestampMs
from tests.erase.archived import KEYS, MessageArchive, body_of
from tests.erase.samples import between
from tests.erase.stores import Erasing
from tests.support.archive import NOW
from tests.support.compacting import compact_stream, options_of
from tests.support.removing import remove_prefix

SECRET = body_of(3)


@pytest.fixture
def erasing() -> Erasing:
    """Three fragments of 24 offsets each."""
    archive = MessageArchive()
    for _ in range(3):
        archive.add(4)
    return Erasing(archive)


def found(erasing: Erasing, first: int = 0, following: int = 24) -> FoundCopies:
    return find_copies(erasing.stores(), erasing.archive.stream, Offset(first), Offset(following))


def kinds(copies: FoundCopies) -> list[CopyKind]:
    return [one.kind for one in copies.copies]


def put(erasing: Erasing, key: str) -> str:
    erasing.archive.objects.objects[key] = SECRET
    return key


def quarantine(erasing: Erasing, first: int, following: int) -> Quarantine:
    key = KEYS.quarantined(erasing.archive.stream.incarnation, Offset(first), '"etag-1"')
    record = Quarantine(Offset(first), Offset(following), "bad CRC", NOW, put(erasing, key), '"etag-1"')
    put(erasing, f"{key}.json")
    record_missing(erasing.archive.table, erasing.archive.stream, record)
    return record


def staged(erasing: Erasing, first: int, following: int, cluster: str = "") -> str:
    keys = replace(KEYS, cluster=Cluster(cluster))
    return put(erasing, keys.staged(erasing.archive.stream.incarnation, Offset(first), Offset(following)))


def test_an_archive_at_rest_has_no_other_copies(erasing: Erasing) -> None:
    assert found(erasing, 0, 72) == FoundCopies()


def test_a_quarantined_segment_that_overlaps_is_found_with_its_record(erasing: Erasing) -> None:
    record = quarantine(erasing, 10, 30)
    assert kinds(found(erasing)) == [CopyKind.QUARANTINED]
    assert found(erasing).quarantines == (record,)
    assert kinds(found(erasing, 30, 40)) == []


@pytest.mark.parametrize("reason", ["a bad CRC", "x" * (MAX_NOTE_BYTES - 100)], ids=["short", "long"])
def test_a_quarantined_segment_without_a_record_is_found_by_its_note(erasing: Erasing, reason: str) -> None:
    key = put(erasing, KEYS.quarantined(erasing.archive.stream.incarnation, Offset(10), '"other"'))
    assert kinds(found(erasing, 50, 60)) == [CopyKind.QUARANTINED]  # it may reach that far
    erasing.archive.objects.objects[f"{key}.json"] = json.dumps({"next_offset": 30, "reason": reason}).encode()
    assert kinds(found(erasing, 50, 60)) == []
    assert kinds(found(erasing, 29, 60)) == [CopyKind.QUARANTINED]


def test_staged_segments_are_found_of_the_cluster_too(erasing: Erasing) -> None:
    stream = erasing.archive.stream
    erasing.archive.table.bind_cluster(stream.vhost, stream.name, Cluster("east"))
    first, second = staged(erasing, 0, 24), staged(erasing, 20, 24, "east")
    staged(erasing, 24, 48)
    assert {one.key for one in found(erasing).copies} == {first, second}


def test_what_another_cluster_staged_in_vain_is_found(erasing: Erasing) -> None:
    stream = erasing.archive.stream
    erasing.archive.table.bind_cluster(stream.vhost, stream.name, Cluster("east"))
    key = staged(erasing, 0, 24, "misnamed")
    upload = replace(KEYS, cluster=Cluster("misnamed")).staged(stream.incarnation, Offset(0), Offset(20))
    erasing.archive.objects.create_upload(upload)
    for other in ("other", f"{stream.incarnation}2"):
        put(erasing, replace(KEYS, cluster=Cluster("east")).staged(Incarnation(other), Offset(0), Offset(24)))
    assert [one.key for one in found(erasing).copies] == [key, upload]


def test_a_longer_segment_in_quarantine_that_begins_with_a_recorded_one_is_found(erasing: Erasing) -> None:
    shorter = quarantine(erasing, 0, 10)
    longer = put(erasing, KEYS.quarantined(erasing.archive.stream.incarnation, Offset(0), '"etag-2"'))
    erasing.archive.objects.put(f"{longer}.json", b'{"next_offset": 20}')
    assert [one.key for one in found(erasing, 12, 24).copies] == [longer]
    assert [one.key for one in found(erasing, 0, 24).copies] == [shorter.key, longer]


def test_unfinished_uploads_are_found_of_segments_and_of_fragments(erasing: Erasing) -> None:
    objects, incarnation = erasing.archive.objects, erasing.archive.stream.incarnation
    objects.create_upload(KEYS.staged(incarnation, Offset(0), Offset(24)))
    objects.create_upload(KEYS.staged(incarnation, Offset(24), Offset(48)))
    objects.create_upload(KEYS.fragment(incarnation, Offset(0), 3))
    assert kinds(found(erasing)) == [CopyKind.UPLOAD, CopyKind.UPLOAD]


def test_an_object_that_nothing_names_is_found_by_its_own_trailer(erasing: Erasing) -> None:
    objects, entry = erasing.archive.objects, erasing.archive.log[0]
    key = KEYS.fragment(erasing.archive.stream.incarnation, Offset(0), 5)
    objects.objects[key] = objects.objects[entry.key]
    assert [(one.kind, one.key, one.next_offset) for one in found(erasing).copies] == [
        (CopyKind.UNCOMMITTED, key, Offset(24))
    ]
    assert kinds(found(erasing, 24, 48)) == []


def compact(erasing: Erasing) -> None:
    archive = erasing.archive
    compact_stream(archive.table, archive.objects, archive.stream, options_of(Encoding.ZSTD_SEEKABLE), now=NOW)


def test_objects_that_await_deletion_are_told_with_their_time(erasing: Erasing) -> None:
    compact(erasing)
    copies = found(erasing, 24, 48)
    assert copies.copies == ()
    assert [(one.first_offset, one.next_offset) for one in copies.awaiting] == [(24, 48)]


def test_an_erasure_is_refused_while_there_are_other_copies(erasing: Erasing) -> None:
    key = staged(erasing, 0, 24)
    before = dict(erasing.archive.objects.objects)
    with pytest.raises(OtherCopiesError, match=key):
        erasing.erase(between(0, 5))
    assert erasing.archive.objects.objects == before
    assert erasing.archive.table.erasures(erasing.archive.stream.incarnation) == ()


def test_all_copies_go_before_it_begins_if_that_is_asked_for(erasing: Erasing) -> None:
    objects, incarnation = erasing.archive.objects, erasing.archive.stream.incarnation
    record = quarantine(erasing, 0, 24)
    staged(erasing, 0, 24)
    objects.create_upload(KEYS.staged(incarnation, Offset(0), Offset(24)))
    uncommitted = KEYS.fragment(incarnation, Offset(0), 5)
    objects.objects[uncommitted] = objects.objects[erasing.archive.log[0].key]
    old = erasing.archive.log[0].key
    assert erasing.erase(between(0, 24), with_copies=True).is_done
    assert erasing.archive.holding(SECRET) == {old}
    assert objects.uploads_under("") == ()
    assert erasing.archive.table.quarantine(incarnation, record.first_offset, record.next_offset) is None
    head = erasing.archive.table.head(incarnation)
    assert head is not None
    assert (head.quarantined, head.quarantined_again) == (0, 0)
    assert head.generation > 5
    note = ControlObjects(objects, KEYS).latest_floor(incarnation)
    assert note is not None
    assert note.generation > 5  # a rebuilt table refuses that key, too
    assert found(erasing).copies == ()


@pytest.mark.parametrize("kind", [quarantine, staged])
def test_what_may_be_the_only_copy_of_a_message_is_never_discarded(erasing: Erasing, kind: object) -> None:
    assert callable(kind)
    kind(erasing, 60, 80)
    before = dict(erasing.archive.objects.objects)
    with pytest.raises(OtherCopiesError, match="holds what is not archived"):
        erasing.erase(between(60, 72), with_copies=True)
    assert erasing.archive.objects.objects == before


def test_a_copy_that_a_hold_overlaps_is_not_discarded(erasing: Erasing) -> None:
    staged(erasing, 0, 48)
    head = erasing.archive.table.head(erasing.archive.stream.incarnation)
    assert head is not None
    erasing.archive.table.apply(plan_hold(head, Hold("case-17", Offset(30), Offset(31), "case 17", "bob", NOW)))
    before = dict(erasing.archive.objects.objects)
    with pytest.raises(HeldError):
        erasing.erase(between(0, 5), with_copies=True)
    assert erasing.archive.objects.objects == before


def test_an_object_that_was_committed_while_copies_were_looked_for_stays(
    erasing: Erasing, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = erasing.archive.objects.listed

    def late(prefix: str, *, after: str | None = None) -> Iterator[ListedObject]:
        if prefix.endswith("/data/"):
            monkeypatch.undo()
            compact(erasing)  # after its tombstones and its log were read, before its objects are listed
        yield from listed(prefix, after=after)

    monkeypatch.setattr(erasing.archive.objects, "listed", late)
    old = {entry.key for entry in erasing.archive.log}
    erasing.erase(between(0, 5), with_copies=True)
    assert erasing.archive.read().keys() == erasing.archive.published.keys()
    assert old <= erasing.archive.objects.objects.keys()  # these wait for their grace


def test_versions_of_what_was_deleted_are_found_and_go() -> None:
    archive = MessageArchive(objects=MemoryObjects(versioned=True))
    archive.add(4)
    erasing = Erasing(archive, bucket=BucketCapabilities(versioned=True))
    key = KEYS.staged(archive.stream.incarnation, Offset(0), Offset(40))
    data = io.BytesIO(SECRET)
    archive.objects.put_new(key, data, size_bytes=len(SECRET), crc32=crc32(SECRET))
    archive.objects.delete(key)
    assert [(one.kind, one.key, one.is_deleted) for one in found(erasing).copies] == [(CopyKind.STAGED, key, True)]
    erasing.erase(between(0, 24), with_copies=True)
    assert SECRET not in archive.every_version()
    assert archive.read().keys() == archive.published.keys()


def test_a_copy_of_removed_offsets_that_are_asked_for_is_found(erasing: Erasing) -> None:
    remove_prefix(erasing.archive.table, erasing.archive.stream.incarnation, 1)
    key = staged(erasing, 0, 24)
    with pytest.raises(OtherCopiesError, match=key):
        erasing.erase(between(0, 48))
    erasing.erase(between(0, 48), with_copies=True)
    assert key not in erasing.archive.objects.objects


def test_a_copy_of_other_offsets_of_the_fragment_is_none(erasing: Erasing) -> None:
    beside, key = staged(erasing, 0, 3), staged(erasing, 3, 9)
    assert erasing.erase(between(5, 6), with_copies=True).is_done
    assert beside in erasing.archive.objects.objects
    assert key not in erasing.archive.objects.objects


def log(erasing: Erasing, first: int, following: int, *, at: int = 1) -> str:
    """Put an object into a recovery log, of this stream and of another."""
    other = StreamId("/", "other", Incarnation("__other_1763700000000000000"))
    runs = [LoggedRun(erasing.archive.stream, Offset(first), Offset(following), SECRET)]
    key = KEYS.span("node-1", TimestampMs(at))
    erasing.archive.objects.put(key, span_object([*runs, replace(runs[0], stream=other)]))
    return key


def test_a_recovery_log_is_found_by_the_offsets_that_it_holds_of_the_stream(erasing: Erasing) -> None:
    log(erasing, 20, 30)
    assert kinds(found(erasing)) == [CopyKind.SPAN]
    assert kinds(found(erasing, 30, 48)) == []


def test_an_erasure_is_refused_while_a_recovery_log_has_the_bytes_even_with_copies(erasing: Erasing) -> None:
    key = log(erasing, 20, 30)
    for with_copies in (False, True):
        with pytest.raises(OtherCopiesError, match="recovery log"):
            erasing.erase(between(0, 24), with_copies=with_copies)
    erasing.archive.objects.delete(key)
    assert erasing.erase(between(0, 24)).is_done


def test_an_erasure_does_not_end_while_an_agent_has_logged_the_bytes_meanwhile(erasing: Erasing) -> None:
    stores, stream = erasing.stores(), erasing.archive.stream
    eraser = Eraser(stores)
    erasure, scope, _ = eraser.begin(stream, between(0, 24), reason="a request", by="me")
    key = log(erasing, 20, 30)
    with pytest.raises(OtherCopiesError, match="recovery log"):
        eraser.run(stream, erasure, scope.selection)
    (running,) = unfinished_erasures(stores, stream.incarnation)
    assert running.messages > 0
    erasing.archive.objects.delete(key)
    assert eraser.run(stream, running, scope.selection).is_done
    assert unfinished_erasures(stores, stream.incarnation) == ()


def test_versions_of_deleted_objects_of_recovery_logs_are_gone_when_an_erasure_is_done(erasing: Erasing) -> None:
    erasing.bucket = BucketCapabilities(versioned=True)
    erasing.archive.objects._versioned = True
    key = log(erasing, 20, 30)
    erasing.archive.objects.delete(key)
    assert kinds(found(erasing)) == []
    assert erasing.erase(between(0, 24)).is_done
    assert not [one for one in erasing.archive.objects.versions(key) if one.size_bytes]
