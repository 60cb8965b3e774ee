from __future__ import annotations

from dataclasses import replace

from coldstream.format.checksum import combine_all_crc32
from coldstream.rebuild.choose import Chosen, choose
from coldstream.rebuild.epochs import MAX_HELD, of_one_history
from coldstream.rebuild.fragment import FoundFragment
from coldstream.units import Epoch, TimestampMs
from tests.rebuild.samples import entry_of

NOW = TimestampMs(1000)


def one(
    first: int, following: int, *, generation: int = 0, epoch: int = 1, crc32: int | None = None, at: int = 0
) -> FoundFragment:
    entry = entry_of(first, following, generation=generation, epoch=epoch, crc32=first if crc32 is None else crc32)
    return FoundFragment(entry, 0, TimestampMs(at), has_note=True)


def merged(*parts: FoundFragment, generation: int = 1, at: int = 0) -> FoundFragment:
    """Make the object that a compaction makes of others."""
    crc32 = combine_all_crc32((part.entry.data_crc32, part.entry.data_bytes) for part in parts)
    made = one(parts[0].entry.first_offset, parts[-1].entry.next_offset, generation=generation, crc32=crc32, at=at)
    data_bytes = sum(part.entry.data_bytes for part in parts)
    return replace(made, entry=replace(made.entry, data_bytes=data_bytes))


def only(*found: FoundFragment, at: TimestampMs | None = None) -> Chosen:
    ordered = sorted(found, key=lambda each: each.entry.key)
    (chosen,) = choose(ordered, at=at)
    return Chosen(chosen.taken, tuple(sorted(chosen.superseded, key=_key)), tuple(sorted(chosen.doubtful, key=_key)))


def _key(found: FoundFragment) -> str:
    return found.entry.key


def test_objects_that_hold_no_offset_twice_are_all_taken() -> None:
    found = [one(0, 10), one(10, 20), one(50, 60)]
    assert [chosen.taken for chosen in choose(found)] == [(each,) for each in found]


def test_a_merged_object_supersedes_those_that_it_was_made_of() -> None:
    parts = [one(0, 10), one(10, 20), one(20, 30)]
    assert only(*parts, merged(*parts)) == Chosen((merged(*parts),), tuple(parts))


def test_a_merged_object_supersedes_all_layers_below_it() -> None:
    parts = [one(0, 10), one(10, 20), one(20, 30)]
    first = merged(*parts[:2])
    last = merged(first, parts[2], generation=2)
    found = only(*parts, first, last)
    assert found.taken == (last,)
    assert {each.entry.key for each in found.superseded} == {each.entry.key for each in (*parts, first)}


def test_an_object_of_other_bytes_within_a_merged_one_is_doubtful() -> None:
    parts = [one(0, 10), one(10, 20)]
    stranger = one(10, 20, generation=3, crc32=99)
    found = only(*parts, stranger, merged(*parts, generation=4))
    assert found.superseded == tuple(parts)
    assert found.doubtful == (stranger,)


def test_no_offset_is_left_out_for_an_object_of_a_higher_generation() -> None:
    whole, half = one(0, 100), one(0, 50, generation=1)
    assert only(whole, half) == Chosen((whole,), doubtful=(half,))


def test_what_was_cut_anew_at_another_generation_is_taken_before_what_was_there() -> None:
    left, first, second = one(0, 100), one(0, 50, generation=1), one(50, 100)
    assert only(left, first, second) == Chosen((first, second), doubtful=(left,))


def test_an_object_that_reaches_past_its_neighbour_is_left_out_if_others_hold_more() -> None:
    straddling = one(40, 70)
    assert only(one(0, 50), straddling, one(50, 100)).doubtful == (straddling,)


def test_an_erased_object_supersedes_the_one_before_though_their_bytes_differ() -> None:
    before, after = one(0, 10), one(0, 10, generation=1, crc32=77)
    after = replace(after, entry=replace(after.entry, erased=True))
    assert only(before, after) == Chosen((after,), (before,))


def test_nothing_brings_back_what_an_erased_object_lacks() -> None:
    erased = one(0, 10, crc32=77, generation=1)
    erased = replace(erased, entry=replace(erased.entry, erased=True))
    larger, newer = one(0, 30, generation=3), one(5, 30, generation=9)
    assert only(erased, larger, newer) == Chosen((erased,), doubtful=(larger, newer))


def test_an_object_whose_crc_nobody_knows_proves_nothing() -> None:
    part = one(0, 10)
    unknown = replace(part, entry=replace(part.entry, data_crc32=None))
    assert only(unknown, merged(part)).doubtful == (unknown,)


def test_at_a_time_later_objects_only_stand_in_for_what_is_gone() -> None:
    parts = [one(0, 10), one(10, 20)]
    later = merged(*parts, at=2000)
    assert only(*parts, later, at=NOW).taken == tuple(parts)
    assert only(parts[0], later, at=NOW).taken == (parts[0],)
    newer = merged(later, generation=2, at=3000)
    assert only(later, newer, at=NOW).taken == (newer,)


def history(*epochs: int) -> list[FoundFragment]:
    return [one(number * 10, number * 10 + 10, epoch=epoch) for number, epoch in enumerate(epochs)]


def kept(found: list[FoundFragment], after: int | None = None) -> tuple[list[int], list[int]]:
    """Return the numbers of the objects that are kept, and of those that are doubtful."""
    left: list[FoundFragment] = []
    chosen = of_one_history(choose(found), after=None if after is None else Epoch(after), leave_out=left.append)
    taken = [each.taken[0].entry.first_offset // 10 for each in chosen]
    return taken, sorted(each.entry.first_offset // 10 for each in left)


def test_a_history_whose_epochs_rise_is_kept_whole() -> None:
    assert kept(history(1, 1, 2, 3, 3)) == ([0, 1, 2, 3, 4], [])


def test_a_stray_object_of_a_later_epoch_is_left_out() -> None:
    assert kept(history(1, 1, 5, 2, 2, 3, 5, 6)) == ([0, 1, 3, 4, 5, 6, 7], [2])


def test_a_stray_object_of_an_earlier_epoch_is_left_out() -> None:
    assert kept(history(1, 4, 4, 2, 4, 5)) == ([0, 1, 2, 4, 5], [3])


def test_a_stray_object_at_either_end_is_left_out() -> None:
    assert kept(history(9, 1, 1, 2)) == ([1, 2, 3], [0])
    assert kept(history(2, 2, 3, 1)) == ([0, 1, 2], [3])


def test_of_two_equal_sides_the_earlier_one_is_kept() -> None:
    assert kept(history(3, 2)) == ([0], [1])


def test_what_was_passed_on_long_ago_is_never_left_out() -> None:
    held = [4] * (MAX_HELD + 10)
    found = history(*held, *([3] * 300), 4)
    taken, left = kept(found)
    assert len(left) == 300
    assert taken[-1] == len(found) - 1


def test_entries_written_before_count_as_passed_on() -> None:
    assert kept(history(3, 3, 5), after=4) == ([2], [0, 1])
