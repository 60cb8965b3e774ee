from __future__ import annotations

from pathlib import Path

import pytest

from coldstream.rebuild.entries import Unreadable
from coldstream.rebuild.fragment import FoundFragment
from coldstream.rebuild.unread import Span, without_older
from coldstream.store.memory.table import MemoryTable
from coldstream.units import Offset, TimestampMs
from tests.rebuild.samples import entry_of, small_points
from tests.rebuild.world import RandomArchive

ALL = ((Offset(0), Offset(1000)),)


def one(first: int, following: int, *, generation: int = 0) -> FoundFragment:
    return FoundFragment(entry_of(first, following, generation=generation), 0, TimestampMs(0), has_note=True)


def unread(first: int, *, generation: int = 1) -> Unreadable:
    return Unreadable(f"{first}.{generation}", "damaged", Offset(first), generation)


def passed(
    *found: FoundFragment | Unreadable, erasures: tuple[Span, ...] = ALL
) -> tuple[list[FoundFragment], list[FoundFragment]]:
    """Return what is passed on, and what is left out."""
    left: list[FoundFragment] = []
    kept = list(without_older(found, erasures, leave_out=lambda each, _: left.append(each)))
    return kept, left


def test_an_older_object_at_the_offset_of_an_unreadable_one_is_left_out() -> None:
    original, following = one(0, 10), one(10, 20)
    assert passed(unread(0), original, following) == ([following], [original])


def test_an_older_object_that_holds_the_offset_in_its_middle_is_left_out() -> None:
    original = one(0, 100)
    assert passed(original, unread(50)) == ([], [original])


def test_layers_below_what_is_left_out_are_left_out_too() -> None:
    first, whole, second = one(0, 10), one(0, 20, generation=1), one(10, 20)
    assert passed(first, whole, unread(0, generation=2), second) == ([], [first, whole, second])


def test_objects_of_the_same_or_a_later_generation_are_passed_on() -> None:
    same, later = one(0, 10, generation=1), one(0, 10, generation=2)
    assert passed(unread(0), same, later) == ([same, later], [])


def test_where_nothing_was_erased_the_older_object_stands_in() -> None:
    original = one(0, 10)
    assert passed(unread(0), original, erasures=((Offset(10), Offset(20)),)) == ([original], [])
    assert passed(unread(0), original, erasures=()) == ([original], [])


def test_an_unreadable_object_without_a_fragments_key_says_nothing() -> None:
    original = one(0, 10)
    assert passed(Unreadable("other", "not the key of a fragment"), original) == ([original], [])


@pytest.mark.parametrize("seed", [1, 4])
@pytest.mark.parametrize("as_of", ["now", "before the erasure"])
def test_a_damaged_erased_object_does_not_bring_the_erased_bytes_back(
    seed: int, as_of: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_points(monkeypatch, ("archive.draft", "manifest.groups", "rebuild.points"))
    archive = RandomArchive(seed, tmp_path)
    for segment in archive.segments:
        archive.uploader.upload(segment)
    before = {entry.key: entry for entry in archive.log()}
    at = archive.now if as_of == "before the erasure" else None
    archive.try_(archive.erase)
    (erased,) = [entry for entry in archive.log() if entry.erased]
    (original,) = [entry for entry in before.values() if entry.first_offset == erased.first_offset]
    assert original.key in archive.objects.objects
    archive.objects.objects[erased.key] = b"damaged"
    table = MemoryTable()
    report = archive.rebuild(table, at=at)
    assert report.is_done
    assert [doubt.key for doubt in report.doubtful] == [original.key]
    assert [doubt.key for doubt in report.unreadable] == [erased.key]
    incarnation = archive.stream.incarnation
    named = {entry.key for entry in table.log_from_offset(incarnation, Offset(0), 1000).entries}
    assert named == before.keys() - {original.key}
    head = table.head(incarnation)
    assert head is not None
    assert head.generation > original.generation, "its upload could be committed again"
