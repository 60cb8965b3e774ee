"""What a policy lets go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from coldstream.lifecycle.expiry import ended_before, ended_by, expired
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.policy import Policy
from coldstream.units import TimestampMs
from tests.support.archive import steady
from tests.support.lifecycle import DAY_MS, Scene


@pytest.fixture(scope="module")
def scene() -> Scene:
    return Scene(fragments=6)


def gone(scene: Scene, **limits: int) -> int:
    """Count the fragments that go under a policy."""
    head = scene.head
    assert head is not None
    found = list(expired(Policy("p", "*/*", **limits), head, scene.log, scene.clock.now))  # type: ignore[arg-type]
    assert found == list(scene.log[: len(found)])
    return len(found)


def age_of(scene: Scene, fragment: int) -> int:
    return scene.clock.now - scene.time_of(fragment)


def test_without_a_limit_nothing_goes(scene: Scene) -> None:
    assert gone(scene) == 0
    assert gone(scene, least_bytes=0, least_messages=0, least_age_ms=0) == 0


def test_a_fragment_goes_when_its_newest_chunk_is_older_than_the_limit(scene: Scene) -> None:
    assert gone(scene, max_age_ms=age_of(scene, 2)) == 2
    assert gone(scene, max_age_ms=age_of(scene, 2) - 1) == 3
    assert gone(scene, max_age_ms=DAY_MS) == 6


def test_the_oldest_go_until_the_rest_fits(scene: Scene) -> None:
    sizes = [entry.object_bytes for entry in scene.log]
    assert gone(scene, max_bytes=sum(sizes)) == 0
    assert gone(scene, max_bytes=sum(sizes) - 1) == 1
    assert gone(scene, max_bytes=sum(sizes[2:])) == 2
    assert gone(scene, max_bytes=0) == 6


def test_either_limit_is_enough(scene: Scene) -> None:
    sizes = [entry.object_bytes for entry in scene.log]
    assert gone(scene, max_age_ms=age_of(scene, 1), max_bytes=sum(sizes[3:])) == 3
    assert gone(scene, max_age_ms=age_of(scene, 4), max_bytes=sum(sizes[3:])) == 4


def test_the_least_to_keep_stays_whatever_the_limits_say(scene: Scene) -> None:
    sizes = [entry.object_bytes for entry in scene.log]
    assert gone(scene, max_age_ms=DAY_MS, least_bytes=sum(sizes[4:])) == 4
    assert gone(scene, max_age_ms=DAY_MS, least_bytes=sum(sizes[4:]) + 1) == 3
    assert gone(scene, max_age_ms=DAY_MS, least_messages=3) == 4
    assert gone(scene, max_bytes=0, least_messages=4) == 4
    assert gone(scene, max_bytes=0, least_age_ms=age_of(scene, 3)) == 3
    assert gone(scene, max_bytes=0, max_age_ms=0, least_messages=100) == 0


def test_what_is_young_is_not_stepped_over() -> None:
    scene = Scene(fragments=1)
    late = TimestampMs(scene.clock.now + DAY_MS)
    scene.archive.add(2, steady(1, late))
    scene.archive.add(3, steady(1, scene.time_of(0)))
    assert gone(scene, max_age_ms=DAY_MS) == 1


def test_the_log_is_read_no_further_than_the_first_that_stays(scene: Scene) -> None:
    taken: list[FragmentEntry] = []

    def log() -> Iterator[FragmentEntry]:
        for entry in scene.log:
            taken.append(entry)
            yield entry

    head = scene.head
    assert head is not None
    list(expired(Policy("p", "*/*", max_age_ms=age_of(scene, 2)), head, log(), scene.clock.now))
    assert len(taken) == 3


def test_what_ended_before_a_time_has_no_chunk_at_or_after_it(scene: Scene) -> None:
    assert len(list(ended_before(scene.log, scene.time_of(2)))) == 2
    assert len(list(ended_before(scene.log, TimestampMs(scene.time_of(2) + 1)))) == 3


@pytest.mark.parametrize(("offset", "fragments"), [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (12, 6), (1000, 6)])
def test_what_ended_by_an_offset_holds_none_from_there_on(scene: Scene, offset: int, fragments: int) -> None:
    assert len(list(ended_by(scene.log, offset))) == fragments
