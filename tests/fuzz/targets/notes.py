"""Notes in the bucket, cursors of long runs in the table, and objects of write-ahead logs."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from coldstream.erase.selection import Selection
from coldstream.garbage.cursor import GarbageCursor, LastPass
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.tally import Tally
from coldstream.manifest.access import Grant
from coldstream.manifest.appender_text import appender_of, appender_text
from coldstream.manifest.cluster import cluster
from coldstream.manifest.entry import Erasure, Hold, Loss
from coldstream.manifest.note import EntryNote
from coldstream.manifest.policy import Policy
from coldstream.manifest.stream import StreamId
from coldstream.rebuild.facts import Doubt
from coldstream.rebuild.progress import Progress
from coldstream.scrub.position import PassPosition
from coldstream.store.control import ClusterBinding, FloorNote, HoldRelease
from coldstream.store.direct_notes import DirectNote, opening_bytes, parse_opening
from coldstream.store.notes import note_bytes, parse_note
from coldstream.store.wal_object import parse_header, seal_object, wal_object
from coldstream.units import TimestampMs
from tests.fuzz.fuzz_target import CORRUPT, SOURCE, FuzzTarget, choose, chosen, same
from tests.fuzz.item_samples import APPENDER, OPENING
from tests.manifest.recorded_samples import ERASURE, FULL, HEADS, HOLDS, LOSS
from tests.manifest.world import AT, STREAM
from tests.support.wal_chunks import chunk

_CRC_BYTES = 4
_SHAPES: tuple[tuple[type[Any], tuple[Any, ...]], ...] = (
    (StreamId, (STREAM,)),
    (FloorNote, tuple(map(FloorNote.of, HEADS[:3]))),
    (HoldRelease, (HoldRelease("a", "b"),)),
    (ClusterBinding, (ClusterBinding("/", "orders", cluster("main")),)),
    (Hold, tuple(HOLDS)),
    (Loss, (LOSS,)),
    (Erasure, (ERASURE,)),
    (Grant, (Grant("arn:aws:iam::1:role/a", "%2F/orders*", AT),)),
    (Policy, (Policy("all", "*/*", max_age_ms=86_400_000),)),
)
_OPTIONS = GarbageOptions()


class _Kept:
    """A table that has one cursor."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def cursor(self, name: str) -> bytes:
        return self._data


class _Recorder(_Kept):
    """A table that keeps what is put."""

    def __init__(self) -> None:
        super().__init__(b"")

    def put_cursor(self, name: str, data: bytes) -> None:
        self._data = data

    def delete_cursor(self, name: str) -> None:
        """Leave it: it is read later."""


def _wal(data: bytes) -> None:
    is_mended, data = choose(data, (True, False))
    if is_mended:
        size = int.from_bytes(data[28:32])
        if _CRC_BYTES < size <= len(data):
            data = data[: size - _CRC_BYTES] + zlib.crc32(data[: size - _CRC_BYTES]).to_bytes(_CRC_BYTES) + data[size:]
    header = parse_header(data, source=SOURCE)
    same(sum(len(one.byte_range) for one in header.entries) >= len(header.entries), True)


def _garbage_load(data: bytes) -> None:
    GarbageCursor(_Kept(data), SOURCE).load(_OPTIONS)  # type: ignore[arg-type]  # the table that it needs


def _garbage_last(data: bytes) -> None:
    cursor = GarbageCursor(_Kept(data), SOURCE)  # type: ignore[arg-type]  # the table that it needs
    cursor.last_pass()
    cursor.reached()


def _entry_note(data: bytes) -> None:
    EntryNote.from_text(data.decode("latin-1"), source=SOURCE)  # as HTTP brings metadata


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _note_of(shape: type[Any]) -> Callable[[bytes], None]:
    def read(data: bytes) -> None:
        found = parse_note(shape, data, source=SOURCE)
        same(parse_note(shape, note_bytes(found), source=SOURCE), found)

    return read


_READERS: tuple[Callable[[bytes], Any], ...] = (
    _wal,
    _entry_note,
    lambda data: DirectNote.from_bytes(data, source=SOURCE),
    lambda data: parse_opening(data, source=SOURCE),
    lambda data: appender_of(_text(data), source=SOURCE),
    lambda data: Selection.from_text(_text(data), source=SOURCE),
    lambda data: Progress.from_bytes(data, source=SOURCE),
    lambda data: PassPosition.from_bytes(data, source=SOURCE),
    _garbage_load,
    _garbage_last,
    *(_note_of(shape) for shape, _ in _SHAPES),
)


def _note(data: bytes) -> None:
    read, rest = choose(data, _READERS)
    read(rest)


def _seeds() -> Iterator[bytes]:
    for entry in (FULL, replace(FULL, erased=False, last_user_chunk=None)):
        yield chosen(1, EntryNote.of(entry, has_points=True).to_text().encode())
    direct = DirectNote(5, APPENDER).to_bytes()
    kept = _Recorder()
    GarbageCursor(kept, SOURCE).save(_OPTIONS, "a/key", Tally())  # type: ignore[arg-type]  # the table that it needs
    ended = _Recorder()
    GarbageCursor(ended, SOURCE).end(LastPass(TimestampMs(5), 1, 2))  # type: ignore[arg-type]  # the same
    position = PassPosition(deep=False, began_at=TimestampMs(5), only=(STREAM.incarnation,), reached="5")
    for number, data in (
        (0, b"\0" + wal_object(bytes(16), [chunk(0), chunk(1)])),
        (0, b"\0" + seal_object(bytes(16))),
        (2, direct),
        (3, opening_bytes(OPENING)),
        (4, appender_text(APPENDER).encode()),
        (5, b'{"offsets":[1,2],"key":{"salt":"00","sha256":"11"},"function":"a:b"}'),
        (5, b'{"properties":[{"field":"properties.user_id","salt":"00","sha256":"11"}]}'),
        (6, Progress(TimestampMs(5), None, 7, 1, (Doubt("a", "b"),)).to_bytes()),
        (7, position.to_bytes()),
        (8, kept.cursor("")),
        (9, ended.cursor("")),
    ):
        yield chosen(number, data)
    for number, (_, values) in enumerate(_SHAPES, len(_READERS) - len(_SHAPES)):
        for value in values:
            yield chosen(number, note_bytes(value))
    for number in range(len(_READERS)):
        yield chosen(number, b'{"version": 1, "a":' + b"[" * 1500)


TARGETS = (FuzzTarget("notes", _note, _seeds, CORRUPT),)
