from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from hashlib import sha256

import pytest

from coldstream.erase.chunk import Doubts
from coldstream.erase.fragment import ErasedFragment, erase_fragment
from coldstream.erase.new_object import put_erased
from coldstream.erase.readback import check_erased
from coldstream.erase.selection import Selection
from coldstream.erase.value_digest import ValueDigest
from coldstream.errors import BadCrcError, CorruptionError, StoppedError, UnavailableError
from coldstream.format.amqp.message import messages
from coldstream.format.chunk import ChunkHeader, iter_chunks
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.format.fragment import FragmentTrailer
from coldstream.manifest.entry import Encoding, FragmentEntry
from coldstream.units import Offset
from tests.erase.archived import KEYS, MessageArchive, body_of, user_of
from tests.erase.samples import between
from tests.support.compaction import identity_of

BOTH = pytest.mark.parametrize("encoding", list(Encoding))


Erase = Callable[[MessageArchive, FragmentEntry, Selection], ErasedFragment]


@pytest.fixture
def erased() -> Iterator[Erase]:
    """Rewrite a fragment into a file, which is closed after the test."""
    with ExitStack() as files:

        def erase(archive: MessageArchive, entry: FragmentEntry, selection: Selection) -> ErasedFragment:
            found = erase_fragment(archive.objects, entry, selection, Doubts())
            assert found is not None
            return files.enter_context(found)

        yield erase


def put(archive: MessageArchive, entry: FragmentEntry, fragment: ErasedFragment) -> FragmentEntry:
    return put_erased(archive.objects, KEYS, archive.stream.incarnation, entry, fragment)


def chunks_of(archive: MessageArchive, entry: FragmentEntry) -> dict[ChunkHeader, dict[int, bytes]]:
    """Read a fragment chunk by chunk, by code that the erasure does not share."""
    data = identity_of(archive.objects, entry)
    return {
        chunk.header: {message.offset: message.raw for message in messages(chunk, source="test")}
        for chunk in iter_chunks(data[8 : 8 + entry.data_bytes], source="test", position=8)
    }


@BOTH
def test_the_new_object_has_all_but_the_erased_messages(encoding: Encoding, erased: Erase) -> None:
    archive = MessageArchive()
    before = archive.add(12, encoding=encoding)
    after = put(archive, before, erased(archive, before, between(9, 30)))
    assert after.encoding is encoding
    assert after.erased
    expected = {
        offset: ERASED_MESSAGE if 9 <= offset < 30 else raw for offset, raw in sorted(archive.published.items())
    }
    found = chunks_of(archive, after)
    assert {offset: raw for content in found.values() for offset, raw in content.items()} == expected
    kept = [replace(header, crc=0, data_bytes=0) for header in chunks_of(archive, before)]
    assert [replace(header, crc=0, data_bytes=0) for header in found] == kept


@BOTH
def test_no_erased_byte_is_in_the_new_object(encoding: Encoding, erased: Erase) -> None:
    archive = MessageArchive()
    before = archive.add(12, encoding=encoding)
    after = put(archive, before, erased(archive, before, between(0, 1000)))
    assert b"secret" not in identity_of(archive.objects, after)


@BOTH
def test_the_entry_says_what_a_new_cut_would_say(encoding: Encoding, erased: Erase) -> None:
    archive = MessageArchive()
    archive.add(3)
    before = archive.add(12, encoding=encoding)
    after = put(archive, before, erased(archive, before, between(0, 1000)))
    same = (
        "first_offset",
        "next_offset",
        "first_timestamp",
        "last_timestamp",
        "greatest_timestamp",
        "epoch",
        "records",
    )
    same += ("chunks", "messages", "segment_offset", "first_epoch", "prior_offset", "prior_timestamp")
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
    assert after.generation == before.generation + 1
    assert after.key != before.key
    assert after.last_user_chunk is not None
    assert before.last_user_chunk is not None
    assert after.last_user_chunk.chunk_id == before.last_user_chunk.chunk_id
    assert after.last_user_chunk.position < before.last_user_chunk.position


def test_the_trailer_keeps_the_place_in_the_segment(erased: Erase) -> None:
    archive = MessageArchive()
    before = archive.add(4)
    after = put(archive, before, erased(archive, before, between(0, 5)))
    data = archive.objects.objects[after.key]
    trailer = FragmentTrailer.from_bytes(data, source="test", object_bytes=len(data))
    assert (trailer.sequence_number, trailer.chunks_before, trailer.data_position) == (3, 11, 4711)


def test_a_fragment_of_several_points_is_indexed_and_framed_anew(erased: Erase) -> None:
    archive = MessageArchive(message=lambda offset: body_of(offset) * 4000)
    before = archive.add(60, records=3, encoding=Encoding.ZSTD_SEEKABLE)
    assert len(before.sparse.points) > 5
    fragment = erased(archive, before, between(0, 60))
    after = put(archive, before, fragment)
    assert after.frames is not None
    assert 1 < len(after.sparse.points) < len(before.sparse.points)
    check_erased(archive.objects, before, after, fragment)


def test_a_fragment_of_which_nothing_is_taken_is_not_written() -> None:
    archive = MessageArchive()
    before = archive.add(4)
    selection = Selection(key=ValueDigest.of("nobody"))
    assert erase_fragment(archive.objects, before, selection, Doubts()) is None
    assert erase_fragment(archive.objects, before, between(500, 600), Doubts()) is None


@BOTH
def test_nothing_is_left_to_erase_in_what_was_erased(encoding: Encoding, erased: Erase) -> None:
    archive = MessageArchive()
    before = archive.add(8, encoding=encoding)
    selection = Selection(key=ValueDigest.of("user-3"))
    after = put(archive, before, erased(archive, before, selection))
    assert erase_fragment(archive.objects, after, selection, Doubts()) is None


def test_messages_are_taken_by_value_wherever_they_are(erased: Erase) -> None:
    archive = MessageArchive()
    before = archive.add(10)
    fragment = erased(archive, before, Selection(key=ValueDigest.of("user-3")))
    taken = [offset for offset in archive.published if user_of(offset) == "user-3"]
    assert fragment.messages == len(taken)
    assert fragment.offsets_sha256 == sha256(b"".join(offset.to_bytes(8) for offset in taken)).digest()


@BOTH
def test_what_is_read_back_is_proven(encoding: Encoding, erased: Erase) -> None:
    archive = MessageArchive()
    before = archive.add(12, encoding=encoding)
    fragment = erased(archive, before, between(9, 30))
    check_erased(archive.objects, before, put(archive, before, fragment), fragment)


def with_other_bytes(archive: MessageArchive, entry: FragmentEntry) -> None:
    data = bytearray(archive.objects.objects[entry.key])
    data[len(data) // 2] ^= 1
    archive.objects.objects[entry.key] = bytes(data)


def gone(archive: MessageArchive, entry: FragmentEntry) -> None:
    archive.objects.objects[entry.key] = archive.objects.objects[entry.key][:-1]


@BOTH
@pytest.mark.parametrize("damage", [with_other_bytes, gone])
def test_an_object_that_is_not_what_was_sent_is_not_proven(
    encoding: Encoding, damage: Callable[[MessageArchive, FragmentEntry], None], erased: Erase
) -> None:
    archive = MessageArchive()
    before = archive.add(12, encoding=encoding)
    fragment = erased(archive, before, between(9, 30))
    after = put(archive, before, fragment)
    damage(archive, after)
    with pytest.raises(CorruptionError):
        check_erased(archive.objects, before, after, fragment)


@pytest.mark.parametrize("others", [between(9, 29), between(9, 31), between(8, 30)])
def test_a_rewrite_of_other_messages_is_not_proven(others: Selection, erased: Erase) -> None:
    archive = MessageArchive()
    before = archive.add(12)
    after = put(archive, before, erased(archive, before, others))
    with pytest.raises(BadCrcError, match="what an erasure keeps"):
        check_erased(archive.objects, before, after, erased(archive, before, between(9, 30)))


def test_a_damaged_fragment_is_never_rewritten() -> None:
    archive = MessageArchive()
    before = archive.add(4)
    with_other_bytes(archive, before)
    with pytest.raises(CorruptionError):
        erase_fragment(archive.objects, before, between(0, 5), Doubts())


def test_a_key_that_is_taken_is_passed_over(erased: Erase) -> None:
    archive = MessageArchive()
    before = archive.add(4)
    taken = KEYS.fragment(archive.stream.incarnation, Offset(0), 1)
    archive.objects.objects[taken] = b"of a killed writer"
    after = put(archive, before, erased(archive, before, between(0, 5)))
    assert after.generation == 2
    assert archive.objects.objects[taken] == b"of a killed writer"


def test_the_generation_is_not_below_the_heads(erased: Erase) -> None:
    archive = MessageArchive()
    before = archive.add(4)
    fragment = erased(archive, before, between(0, 5))
    incarnation = archive.stream.incarnation
    assert put_erased(archive.objects, KEYS, incarnation, before, fragment, least_generation=9).generation == 9


def test_too_many_taken_keys_end_the_search(erased: Erase) -> None:
    archive = MessageArchive()
    before = archive.add(4)
    for generation in range(1, 65):
        archive.objects.objects[KEYS.fragment(archive.stream.incarnation, Offset(0), generation)] = b""
    with pytest.raises(UnavailableError, match="all 64 keys"):
        put(archive, before, erased(archive, before, between(0, 5)))


def test_a_stopped_rewrite_leaves_no_object_and_no_upload(erased: Erase) -> None:
    archive = MessageArchive()
    before = archive.add(4, encoding=Encoding.ZSTD_SEEKABLE)
    fragment = erased(archive, before, between(0, 5))
    with pytest.raises(StoppedError):
        put_erased(archive.objects, KEYS, archive.stream.incarnation, before, fragment, should_stop=lambda: True)
    assert list(archive.objects.objects) == [before.key]
    assert archive.objects.uploads_under("") == ()
