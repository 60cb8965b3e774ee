"""Messages of direct streams are erased like any, and not before no write-ahead log has their bytes."""

from __future__ import annotations

import io
from zlib import crc32

import pytest

from coldstream.erase.copies import CopyKind
from coldstream.erase.report import ErasureReport
from coldstream.erase.run import Eraser
from coldstream.errors import InvalidQueryError, OtherCopiesError
from coldstream.lifecycle.sweep import sweep
from coldstream.manifest.appender import WalKind
from coldstream.rebuild.run import Rebuilder
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.store.wal_object import WalChunk, wal_object
from coldstream.streams import DirectArchive
from coldstream.units import Epoch, Offset, now_ms
from tests.erase.samples import between
from tests.support.direct_streams import PUBLISHER, append, bodies, direct_head, lifecycle_stores, opened, scanned

DAY_MS = 24 * 3600 * 1000


def archive_of(*, versioned: bool = False) -> DirectArchive:
    return DirectArchive(MemoryTable(), MemoryObjects(versioned=versioned), Keys())


def erase(archive: DirectArchive, first: int, following: int, *, with_copies: bool = False) -> ErasureReport:
    stream = direct_head(archive).stream
    eraser = Eraser(lifecycle_stores(archive), grace_ms=0)
    selection = between(first, following)
    erasure, _, _ = eraser.begin(stream, selection, reason="ticket 17", by="me", with_copies=with_copies)
    report = eraser.run(stream, erasure, selection)
    sweep(lifecycle_stores(archive), stream.incarnation)
    return report


def everything(archive: DirectArchive) -> bytes:
    """Return all bytes that a bucket without versions has."""
    assert isinstance(archive.objects, MemoryObjects)
    return b"".join(archive.objects.objects.values())


@pytest.mark.parametrize("is_published", [False, True])
def test_what_is_erased_is_nowhere_and_comes_back_by_no_recovery_and_no_rebuild(*, is_published: bool) -> None:
    archive = archive_of()
    appended = append(archive, 2, is_published=is_published)
    assert erase(archive, 3, 6).messages == 3
    assert not any(gone in everything(archive) for gone in appended[3:6])
    wanted = [*appended[:3], b"", b"", b"", *appended[6:]]
    assert scanned(archive, direct_head(archive).stream) == wanted
    more = append(archive, 1, is_published=is_published)
    stream = direct_head(archive).stream
    assert scanned(archive, stream) == wanted + more
    table = MemoryTable()
    Rebuilder(table, archive.objects, archive.keys, now_ms, DAY_MS).stream(stream.incarnation)
    rebuilt = DirectArchive(table, archive.objects, archive.keys)
    assert scanned(rebuilt, stream) == wanted + more
    with opened(archive) as handle:
        assert (handle.publisher_id(PUBLISHER) is not None) == is_published


def test_an_erasure_is_refused_while_a_write_ahead_log_has_the_bytes() -> None:
    archive = archive_of()
    with opened(archive) as stream:
        stream.append(bodies(0, 3))
        stream.flush()
        stream.append(bodies(3, 3))
        for with_copies in (False, True):
            with pytest.raises(OtherCopiesError, match=f"{CopyKind.LOGGED} wal/"):
                erase(archive, 0, 3, with_copies=with_copies)
        with pytest.raises(InvalidQueryError, match="past the tail"):
            erase(archive, 3, 6)
    assert erase(archive, 0, 6).messages == 6
    assert not any(one in everything(archive) for one in bodies(0, 6))


def test_other_streams_of_the_same_log_do_not_hinder_an_erasure_and_other_offsets_neither() -> None:
    archive = archive_of()
    append(archive, 1)
    with opened(archive, "others") as others, opened(archive) as stream:
        others.append(bodies(100, 3))
        stream.append(bodies(200, 3))
        stream.flush()
        assert erase(archive, 0, 3).messages == 3
        with pytest.raises(OtherCopiesError):
            erase(archive, 0, 13)


def test_a_log_that_a_dead_process_left_is_found_though_the_head_has_forgotten_it() -> None:
    archive = archive_of()
    append(archive, 1)
    head = direct_head(archive)
    assert head.appender is not None
    assert head.appender.openings == ()
    (opening,) = lifecycle_stores(archive).control.openings(head.stream.incarnation)
    assert opening.wal.kind is WalKind.S3
    chunk = WalChunk(head.stream.incarnation, Epoch(1), Offset(0), Offset(3), b"".join(bodies(0, 3)))
    late = wal_object(bytes(16), [chunk])
    key = archive.keys.wal_object(opening.wal.writer, opening.wal.epoch, 1)
    archive.objects.put_new(key, io.BytesIO(late), size_bytes=len(late), crc32=crc32(late))
    with pytest.raises(OtherCopiesError, match=key):
        erase(archive, 0, 3)
    assert erase(archive, 3, 6).messages == 3
    archive.objects.delete(key)
    assert erase(archive, 0, 3).messages == 3


def test_versions_of_deleted_objects_of_the_log_go_with_the_other_copies() -> None:
    archive = archive_of(versioned=True)
    append(archive, 2)
    with pytest.raises(OtherCopiesError, match="wal/"):
        erase(archive, 0, 3)
    assert erase(archive, 0, 3, with_copies=True).messages == 3
    assert list(archive.objects.versions("wal/")) == []
    assert scanned(archive, direct_head(archive).stream)[:4] == [b"", b"", b"", bodies(3, 1)[0]]
