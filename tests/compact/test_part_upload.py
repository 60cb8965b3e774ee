from __future__ import annotations

from collections.abc import Sequence
from threading import Barrier, Event, Lock
from zlib import crc32

import pytest

from coldstream.compact.part_upload import PARTS_AT_ONCE, PartUpload
from coldstream.errors import BadCrcError, ConflictError, ObjectExistsError, UnavailableError
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import UploadedPart

KEY = "data/00000000000000000000.1.fragment"


def send(objects: MemoryObjects, data: bytes) -> None:
    """Make an object of one part."""
    with PartUpload(objects, KEY, lambda _: None) as upload:
        upload.add(lambda number: upload.put(number, data))
        upload.complete(crc32(data))


def test_parts_are_in_the_order_in_which_they_were_added_whichever_is_first() -> None:
    objects = MemoryObjects()
    is_second_there = Event()
    sizes: list[int] = []
    with PartUpload(objects, KEY, sizes.append) as upload:

        def first(number: int) -> UploadedPart:
            assert is_second_there.wait(10)
            return upload.put(number, b"first, ")

        def second(number: int) -> UploadedPart:
            part = upload.put(number, b"second")
            is_second_there.set()
            return part

        upload.add(first)
        upload.add(second)
        upload.complete(crc32(b"first, second"))
    assert objects.objects[KEY] == b"first, second"
    assert sizes == [7, 6]


def test_an_upload_that_is_complete_is_not_aborted() -> None:
    objects = MemoryObjects()
    send(objects, b"bytes")
    assert objects.objects == {KEY: b"bytes"}
    assert objects.requests.keys() == {"CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload"}


def test_so_many_parts_are_sent_at_once_and_no_more() -> None:
    objects = MemoryObjects()
    under_way = 0
    most = 0
    all_there = Barrier(PARTS_AT_ONCE)
    lock = Lock()
    with PartUpload(objects, KEY, lambda _: None) as upload:

        def send(number: int) -> UploadedPart:
            nonlocal under_way, most
            with lock:
                under_way += 1
                most = max(most, under_way)
            all_there.wait(10)
            with lock:
                under_way -= 1
            return upload.put(number, b"x")

        for _ in range(3 * PARTS_AT_ONCE):
            upload.add(send)
        upload.complete(crc32(b"x" * 3 * PARTS_AT_ONCE))
    assert most == PARTS_AT_ONCE


def test_no_more_parts_than_are_sent_at_once_are_kept_waiting() -> None:
    objects = MemoryObjects()
    sent: list[int] = []
    with PartUpload(objects, KEY, sent.append) as upload:
        for added in range(1, 4 * PARTS_AT_ONCE):
            upload.add(lambda number: upload.put(number, b"x"))
            assert added - len(sent) <= PARTS_AT_ONCE


def test_a_part_that_fails_ends_the_upload_once_the_others_have_arrived() -> None:
    objects = MemoryObjects()
    may_go_on = Event()
    arrived: list[int] = []

    def run() -> None:
        with PartUpload(objects, KEY, lambda _: None) as upload:

            def fail(_: int) -> UploadedPart:
                may_go_on.set()
                raise UnavailableError("no answer")

            def slow(number: int) -> UploadedPart:
                assert may_go_on.wait(10)
                part = upload.put(number, b"slow")
                arrived.append(number)
                return part

            upload.add(fail)
            upload.add(slow)
            upload.complete(0)

    with pytest.raises(UnavailableError):
        run()
    assert arrived in ([], [2])
    assert not objects.uploads(KEY)
    assert not objects.objects


def test_an_object_of_anothers_is_told_and_stays() -> None:
    objects = MemoryObjects()
    objects.objects[KEY] = b"another's"
    with pytest.raises(ObjectExistsError):
        send(objects, b"ours")
    assert objects.objects[KEY] == b"another's"
    assert not objects.uploads(KEY)


def test_the_same_bytes_of_anothers_are_not_taken_for_ours() -> None:
    objects = MemoryObjects()
    objects.objects[KEY] = b"bytes"
    with pytest.raises(ObjectExistsError):
        send(objects, b"bytes")


def test_a_failing_abort_does_not_hide_what_went_wrong() -> None:
    class Out(MemoryObjects):
        def put_part(self, key: str, upload_id: str, number: int, data: bytes, *, crc32: int) -> UploadedPart:
            raise UnavailableError("first")

        def abort_upload(self, key: str, upload_id: str) -> None:
            raise UnavailableError("second")

    with pytest.raises(UnavailableError, match="first"):
        send(Out(), b"x")


def test_parts_are_numbered_from_one_on_without_a_gap() -> None:
    objects = MemoryObjects()
    numbers: list[int] = []
    with PartUpload(objects, KEY, lambda _: None) as upload:

        def put(number: int) -> UploadedPart:
            numbers.append(number)
            return upload.put(number, b"x")

        for _ in range(3 * PARTS_AT_ONCE):
            upload.add(put)
        upload.complete(crc32(b"x" * 3 * PARTS_AT_ONCE))
    assert sorted(numbers) == list(range(1, 3 * PARTS_AT_ONCE + 1))


@pytest.mark.parametrize("there", [None, b"other", b"others"])
def test_an_upload_that_is_gone_made_the_object_only_if_it_is_what_was_sent(there: bytes | None) -> None:
    class Gone(MemoryObjects):
        def complete_upload(self, key: str, upload_id: str, parts: Sequence[UploadedPart], *, crc32: int) -> None:
            self.abort_upload(key, upload_id)
            if there is not None:
                self.objects[key] = there
            raise ConflictError("the upload is gone")

    with pytest.raises(ConflictError, match="the upload is gone"):
        send(Gone(), b"bytes")


def test_a_store_that_looks_at_no_checksum_gets_no_object_of_other_bytes() -> None:
    class Careless(MemoryObjects):
        def complete_upload(self, key: str, upload_id: str, parts: Sequence[UploadedPart], *, crc32: int) -> None:
            raise AssertionError(f"{key} was completed with {crc32}")

    def send_others(objects: MemoryObjects) -> None:
        with PartUpload(objects, KEY, lambda _: None) as upload:
            upload.add(lambda number: upload.put(number, b"first, "))
            upload.add(lambda number: upload.put(number, b"sekond"))
            upload.complete(crc32(b"first, second"))

    objects = Careless()
    with pytest.raises(BadCrcError, match=KEY):
        send_others(objects)
    assert not objects.objects
    assert not objects.uploads_under("")
