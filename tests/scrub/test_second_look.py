"""One wrong answer of the bucket is no damage: a second look has to find it as well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coldstream.scrub.damage import Damage
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import ObjectInfo, RangeRead
from coldstream.units import ByteRange
from tests.support.archive import ChunkArchive
from tests.support.scrubbing import damages, scrub, small_archive


class LyingObjects(MemoryObjects):
    """Answers rightly, but for the answers of these numbers, from 0 on; `answers` counts them."""

    lies: tuple[int, ...] = ()
    answers = 0

    def info(self, key: str) -> ObjectInfo | None:
        found = super().info(key)
        if not self._lies() or found is None:
            return found
        return replace(found, crc32=None if found.crc32 is None else found.crc32 ^ 1)

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        found = super().get_range(key, byte_range, if_match=if_match)
        if not self._lies():
            return found
        data = bytearray(found.data)
        data[len(data) // 2] ^= 1
        return replace(found, data=bytes(data))

    def _lies(self) -> bool:
        self.answers += 1
        return self.answers - 1 in self.lies


def lying_archive(*lies: int) -> ChunkArchive:
    archive = small_archive()
    archive.objects.__class__ = LyingObjects
    archive.objects.lies = lies  # type: ignore[attr-defined]  # its class is another now
    return archive


def answers() -> int:
    """Return how many answers a scrub of the sound archive takes."""
    archive = lying_archive()
    assert damages(scrub(archive, deep=True)) == []
    return archive.objects.answers  # type: ignore[attr-defined,no-any-return]


def test_no_answer_that_is_wrong_once_is_a_damage_and_nothing_is_repaired() -> None:
    for number in range(answers()):
        archive = lying_archive(number)
        before = archive.objects.objects.copy(), list(archive.table.rows(archive.stream.incarnation))
        report = scrub(archive, deep=True, repair=True, take_again=True)
        assert (damages(report), report.position.unsettled) == ([], 0), number
        assert (archive.objects.objects, list(archive.table.rows(archive.stream.incarnation))) == before


def test_two_looks_that_find_different_damages_leave_it_to_a_later_pass() -> None:
    # The HEAD of the first fragment, then the GET of its end: the second look begins with the second HEAD.
    found = []
    for second in range(1, 6):
        report = scrub(lying_archive(0, second), deep=True)
        assert report.position.fragments == 5
        found.append((damages(report), report.position.unsettled))
    assert ([Damage.OBJECT_CHECKSUM], 0) in found
    assert ([], 1) in found


@pytest.mark.parametrize("deep", [False, True])
def test_what_is_wrong_each_time_is_a_damage_that_names_its_object(*, deep: bool) -> None:
    archive = small_archive()
    key = next(one for one in archive.objects.objects if one.endswith("20.fragment"))
    body = bytearray(archive.objects.objects[key])
    body[100] ^= 1
    archive.objects.objects[key] = bytes(body)
    (finding,) = scrub(archive, deep=deep).findings
    assert finding.key == key
    assert key in finding.detail
