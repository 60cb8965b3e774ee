"""What holds of merges and rewrites alike."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from coldstream.compact.write import MergedFragment, _note, write_group
from coldstream.errors import (
    BadCrcError,
    BadLengthError,
    ColdstreamError,
    ConflictError,
    CorruptionError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoppedError,
    UnavailableError,
)
from coldstream.manifest.entry import Encoding
from coldstream.manifest.groups import Group
from coldstream.manifest.note import EntryNote
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import ObjectInfo, RangeRead, UploadedPart
from coldstream.units import ByteRange
from tests.compact.samples import INCARNATION, KEYS, Fragments, of_sizes, small, with_points
from tests.support.compaction import identity_of


@pytest.fixture(params=list(Encoding))
def encoding(request: pytest.FixtureRequest) -> Encoding:
    """Either encoding to write."""
    return Encoding(request.param)


def key_of(made: Fragments, generation: int) -> str:
    return KEYS.fragment(INCARNATION, made.group.first_offset, generation)


def assert_nothing_is_left(objects: MemoryObjects, made: Fragments) -> None:
    assert objects.objects.keys() == made.objects.objects.keys()
    assert not any(objects.uploads(key_of(made, generation)) for generation in range(5))


def test_the_entry_is_that_of_the_whole_group(encoding: Encoding) -> None:
    made = with_points(3)
    written = write_group(made.objects, KEYS, INCARNATION, made.group, encoding)
    data = made.objects.objects[written.entry.key]
    assert written.entry == made.group.merged(
        key=key_of(made, 1),
        generation=1,
        object_bytes=len(data),
        crc32=written.entry.crc32,
        frames=written.entry.frames,
    )
    assert written.entry.encoding is encoding
    assert identity_of(made.objects, written.entry) == made.identity


def test_progress_adds_up_to_the_merged_fragment(encoding: Encoding) -> None:
    made = with_points(3)
    sizes: list[int] = []
    write_group(made.objects, KEYS, INCARNATION, made.group, encoding, on_bytes=sizes.append)
    assert sum(sizes) == made.group.identity_bytes


def test_a_taken_key_is_passed_by_even_with_the_same_bytes(encoding: Encoding) -> None:
    made = small()
    first = write_group(made.objects, KEYS, INCARNATION, made.group, encoding).entry
    data = made.objects.objects[first.key]
    second = write_group(made.objects, KEYS, INCARNATION, made.group, encoding).entry
    assert (first.generation, second.generation) == (1, 2)
    assert second.key == key_of(made, 2)
    assert made.objects.objects[first.key] == made.objects.objects[second.key] == data


def test_the_generation_is_above_all_of_the_group(encoding: Encoding) -> None:
    made = small()
    made.change(1, generation=6)
    assert write_group(made.objects, KEYS, INCARNATION, made.group, encoding).entry.key == key_of(made, 7)


@pytest.mark.parametrize("field", ["chunk_id", "position", "timestamp", "greatest_before"])
def test_a_point_of_the_manifest_has_to_be_that_of_the_index(encoding: Encoding, field: str) -> None:
    made = small()
    made.change_point(1, 1, **{field: 1})
    with pytest.raises(CorruptionError, match="chunk at a point of the sparse index") as caught:
        write_group(made.objects, KEYS, INCARNATION, made.group, encoding)
    assert caught.value.source == made.group.entries[1].key
    assert_nothing_is_left(made.objects, made)


def test_a_store_that_refuses_bytes_of_which_none_is_wrong_is_asked_again_later(encoding: Encoding) -> None:
    class Refusing(MemoryObjects):
        def complete_upload(self, key: str, upload_id: str, parts: Sequence[UploadedPart], *, crc32: int) -> None:
            raise BadCrcError(key, 0, "CRC-32 of the object", expected=crc32, found=0)

    made, objects = small(), Refusing()
    made.put_into(objects)
    with pytest.raises(UnavailableError, match="S3 refused"):
        write_group(objects, KEYS, INCARNATION, made.group, encoding)
    assert_nothing_is_left(objects, made)


class WrongOnce(MemoryObjects):
    """One byte of the first answers is another."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._times = times

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        read = super().get_range(key, byte_range, if_match=if_match)
        if not self._times:
            return read
        self._times -= 1
        return replace(read, data=read.data[:-1] + bytes((read.data[-1] ^ 1,)))


def test_a_byte_that_was_wrong_once_is_no_damage(encoding: Encoding) -> None:
    made, objects = small(), WrongOnce(1)
    made.put_into(objects)
    written = write_group(objects, KEYS, INCARNATION, made.group, encoding)
    assert identity_of(objects, written.entry) == made.identity
    assert objects.objects.keys() == {*made.objects.objects, written.entry.key}


def test_bytes_that_are_wrong_twice_are_a_damage(encoding: Encoding) -> None:
    made, objects = small(), WrongOnce(100)
    made.put_into(objects)
    with pytest.raises(CorruptionError):
        write_group(objects, KEYS, INCARNATION, made.group, encoding)
    assert_nothing_is_left(objects, made)


def test_who_finds_every_key_taken_gives_up(monkeypatch: pytest.MonkeyPatch, encoding: Encoding) -> None:
    monkeypatch.setattr("coldstream.compact.write.MAX_GENERATIONS", 3)
    made = small()
    for generation in (5, 6, 7):
        made.objects.put(key_of(made, generation), b"another's")
    with pytest.raises(UnavailableError, match="all 3 keys"):
        write_group(made.objects, KEYS, INCARNATION, made.group, encoding, least_generation=5)
    assert write_group(made.objects, KEYS, INCARNATION, made.group, encoding, least_generation=6).entry.generation == 8


class Meeting(MemoryObjects):
    """Writers that look at a key go on together."""

    def __init__(self, writers: int) -> None:
        super().__init__()
        self._barrier = Barrier(writers)

    def info(self, key: str) -> ObjectInfo | None:
        there = super().info(key)
        if key == KEYS.fragment(INCARNATION, small().group.first_offset, 1):
            self._barrier.wait(timeout=10)
        return there


def test_of_two_writers_at_once_each_makes_an_object_of_its_own(encoding: Encoding) -> None:
    made = small()
    objects = Meeting(2)
    made.put_into(objects)

    def write(_: int) -> MergedFragment:
        return write_group(objects, KEYS, INCARNATION, made.group, encoding)

    with ThreadPoolExecutor(2) as pool:
        entries = [written.entry for written in pool.map(write, range(2))]
    assert {entry.key for entry in entries} == {key_of(made, 1), key_of(made, 2)}
    assert [identity_of(objects, entry) for entry in entries] == [made.identity] * 2
    assert not objects.uploads(key_of(made, 1))


class SentTwice(MemoryObjects):
    """Completes an upload, and then answers as the second of two requests is answered."""

    def __init__(self, answer: ConflictError) -> None:
        super().__init__()
        self._answer = answer

    def complete_upload(self, key: str, upload_id: str, parts: Sequence[UploadedPart], *, crc32: int) -> None:
        super().complete_upload(key, upload_id, parts, crc32=crc32)
        raise self._answer


@pytest.mark.parametrize("answer", [ObjectExistsError("key"), ConflictError("the upload is gone")])
def test_an_upload_that_was_completed_by_a_lost_request_is_known_again(
    encoding: Encoding, answer: ConflictError
) -> None:
    made = small()
    objects = SentTwice(answer)
    made.put_into(objects)
    written = write_group(objects, KEYS, INCARNATION, made.group, encoding)
    assert written.entry.generation == 1
    assert identity_of(objects, written.entry) == made.identity


class Failing(MemoryObjects):
    """Fails at one kind of request, from the n-th on."""

    def __init__(self, request: str, after: int) -> None:
        super().__init__()
        self._request = request
        self._after = after

    def _count(self, call: str) -> None:
        super()._count(call)
        if call == self._request and self.requests[call] > self._after:
            raise UnavailableError(f"{call}: no answer")


@pytest.mark.parametrize(
    ("request_", "after"),
    [
        ("GetObject", 0),
        ("GetObject", 2),
        ("UploadPart", 0),
        ("CreateMultipartUpload", 0),
        ("CompleteMultipartUpload", 0),
        ("HeadObject", 0),
    ],
)
def test_a_store_that_fails_is_left_with_nothing(encoding: Encoding, request_: str, after: int) -> None:
    made = small()
    objects = Failing(request_, after)
    made.put_into(objects)
    with pytest.raises(UnavailableError):
        write_group(objects, KEYS, INCARNATION, made.group, encoding)
    assert_nothing_is_left(objects, made)


def test_a_copy_that_fails_leaves_nothing() -> None:
    made = of_sizes(6 << 20, 6 << 20, 6 << 20)
    objects = Failing("UploadPartCopy", 1)
    made.put_into(objects)
    with pytest.raises(UnavailableError):
        write_group(objects, KEYS, INCARNATION, made.group, Encoding.IDENTITY)
    assert_nothing_is_left(objects, made)


def test_an_object_that_is_gone_is_named(encoding: Encoding) -> None:
    made = small()
    key = made.group.entries[1].key
    del made.objects.objects[key]
    with pytest.raises(ObjectNotFoundError) as caught:
        write_group(made.objects, KEYS, INCARNATION, made.group, encoding)
    assert caught.value.key == key
    assert not made.objects.uploads(key_of(made, 1))


@pytest.mark.parametrize("cut", [1, 100, -1])
def test_an_object_of_another_size_is_corrupt(encoding: Encoding, cut: int) -> None:
    made = small()
    key = made.group.entries[2].key
    data = made.objects.objects[key]
    made.objects.objects[key] = data[:-cut] if cut > 0 else data + b"x"
    with pytest.raises(BadLengthError, match="size of the object") as caught:
        write_group(made.objects, KEYS, INCARNATION, made.group, encoding)
    assert caught.value.source == key
    assert not made.objects.uploads(key_of(made, 1))


class Replaced(MemoryObjects):
    """All objects get another version, of the same size, once some of it was read."""

    def create_upload(self, key: str, *, note: str | None = None) -> str:
        self.objects = {key: bytes(len(data)) for key, data in self.objects.items()}
        return super().create_upload(key, note=note)


def test_an_object_that_is_replaced_before_it_is_copied_is_a_conflict() -> None:
    made = of_sizes(6 << 20, 100)
    objects = Replaced()
    made.put_into(objects)
    with pytest.raises(ConflictError, match="another"):
        write_group(objects, KEYS, INCARNATION, made.group, Encoding.IDENTITY)
    assert_nothing_is_left(objects, made)


class Alternating(MemoryObjects):
    """Answers a read behind the first block as of another version."""

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        read = super().get_range(key, byte_range, if_match=if_match)
        return read if byte_range.start == 0 else replace(read, etag='"another"')


def test_an_object_that_is_replaced_between_two_reads_is_a_conflict() -> None:
    made = of_sizes(6 << 20)
    objects = Alternating()
    made.put_into(objects)
    with pytest.raises(ConflictError, match="replaced"):
        write_group(objects, KEYS, INCARNATION, made.group, Encoding.ZSTD_SEEKABLE)
    assert_nothing_is_left(objects, made)


@pytest.mark.parametrize("after", [0, 1, 3])
def test_it_stops_when_told_and_leaves_nothing(encoding: Encoding, after: int) -> None:
    made = of_sizes(*([6 << 20] * 6))
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > after

    with pytest.raises(StoppedError):
        write_group(made.objects, KEYS, INCARNATION, made.group, encoding, should_stop=should_stop)
    assert list(made.objects.objects) == [entry.key for entry in made.group.entries]
    assert not made.objects.uploads(key_of(made, 1))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ColdstreamError("of the caller")])
def test_an_exception_of_the_callers_leaves_nothing(
    encoding: Encoding, error: type[BaseException] | BaseException
) -> None:
    made = small()

    def on_bytes(_: int) -> None:
        raise error

    with pytest.raises((KeyboardInterrupt, ColdstreamError)):
        write_group(made.objects, KEYS, INCARNATION, made.group, encoding, on_bytes=on_bytes)
    assert list(made.objects.objects) == [entry.key for entry in made.group.entries]
    assert not made.objects.uploads(key_of(made, 1))


def test_one_alone_is_rewritten(encoding: Encoding) -> None:
    made = small()
    alone = Group(made.group.entries[1:2])
    entry = write_group(made.objects, KEYS, INCARNATION, alone, encoding).entry
    assert identity_of(made.objects, entry) == made.objects.objects[alone.entries[0].key]


def test_only_the_note_of_an_identity_fragment_has_points_as_frames_tell_those_of_the_other() -> None:
    group = with_points(4).group
    ordinals = tuple(point.ordinal for point in group.sparse().points)
    assert len(ordinals) > 1
    points = [EntryNote.from_text(_note(group, encoding), source="note").points for encoding in Encoding]
    assert dict(zip(Encoding, points, strict=True)) == {Encoding.IDENTITY: ordinals, Encoding.ZSTD_SEEKABLE: None}
