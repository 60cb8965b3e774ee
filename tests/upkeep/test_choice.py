"""Which streams a job is about, and how much that is."""

from __future__ import annotations

from coldstream.jobs.specs import parse_spec
from coldstream.store.grace import LONGEST_GRACE_MS, grace_ms
from coldstream.store.open_archive import OpenArchive
from coldstream.store.settings import Settings
from coldstream.upkeep.archive import UpkeepArchive
from coldstream.upkeep.choice import SpecOfStreams, StreamChoice, key_of
from coldstream.upkeep.survey import MOST_STREAMS, Survey, survey
from tests.upkeep.world import UpkeepWorld, stream_of


def choice_of(world: UpkeepWorld, *streams: str, vhost: str = "/") -> StreamChoice:
    spec = parse_spec({"kind": "compact", "streams": list(streams), "vhost": vhost})
    assert isinstance(spec, SpecOfStreams)
    return StreamChoice.find(world.table, spec)


def world_of() -> UpkeepWorld:
    world = UpkeepWorld()
    for name in ("a", "b", "ab", "c"):
        world.stream(name, 2, 3)
    world.stream("a", 2, vhost="other", declared=2)
    world.stream("b", 2, declared=3)
    return world


def test_streams_come_in_the_order_of_the_registry_from_any_key_on() -> None:
    world = world_of()
    for streams in ((), ("*",), ("a", "b", "c"), ("a", "?b", "c*")):
        choice = choice_of(world, *streams)
        found = list(choice.iter(world.table))
        assert [key_of(one) for one in found] == sorted(map(key_of, found))
        for number, stream in enumerate(found):
            assert list(choice.iter(world.table, key_of(stream))) == found[number + 1 :]


def test_without_names_it_is_every_stream_of_every_vhost() -> None:
    world = world_of()
    assert set(choice_of(world).iter(world.table)) == set(world.streams)


def test_names_are_of_one_vhost_and_of_the_newest_incarnation() -> None:
    world = world_of()
    assert set(choice_of(world, "a", "b").iter(world.table)) == {stream_of("a"), stream_of("b", declared=3)}
    assert set(choice_of(world, "a", vhost="other").iter(world.table)) == {stream_of("a", "other", 2)}


def test_patterns_are_of_each_incarnation() -> None:
    world = world_of()
    assert set(choice_of(world, "b*").iter(world.table)) == {stream_of("b"), stream_of("b", declared=3)}
    assert set(choice_of(world, "b", "c*").iter(world.table)) == {stream_of("b", declared=3), stream_of("c")}


def test_names_that_nobody_has_are_told_with_the_reason() -> None:
    world = world_of()
    choice = choice_of(world, "a", "x" * 255, "gone", "ö" * 200)
    assert [name for name, _ in choice.missing] == ["x" * 255, "gone", "ö" * 200]
    assert "400 bytes" in choice.missing[2][1]
    assert choice_of(world, "b*", "x*", "?").unmatched(world.table) == ["x*"]


def test_a_survey_counts_what_the_heads_say_and_gives_up_in_bounds() -> None:
    world = world_of()
    choice = choice_of(world, "*")
    data_bytes = sum(entry.data_bytes for one in world.streams.values() for entry in one.log if one.stream.vhost == "/")
    assert survey(world.table, choice) == Survey(5, 9, data_bytes)
    few = survey(world.table, choice, 2)
    assert (few.streams, few.is_complete) == (5, False)
    assert MOST_STREAMS > 1000


def test_the_environment_says_what_a_process_may() -> None:
    world = UpkeepWorld()
    names = {"COLDSTREAM_BUCKET": "b", "COLDSTREAM_TABLE": "t", "COLDSTREAM_SPOOL_DIR": "/tmp"}
    opened = OpenArchive(Settings.from_environment(names), world.table, world.objects, world.stores().keys)  # type: ignore[arg-type]
    found = UpkeepArchive.open(opened, names)
    assert (found.stores.grace_ms, found.may_sweep, str(found.spool_dir)) == (LONGEST_GRACE_MS, True, "/tmp")
    told = {**names, "COLDSTREAM_URL_EXPIRY_S": "60", "COLDSTREAM_SWEEP": "off"}
    opened = OpenArchive(Settings.from_environment(told), world.table, world.objects, world.stores().keys)  # type: ignore[arg-type]
    found = UpkeepArchive.open(opened, told)
    assert (found.stores.grace_ms, found.may_sweep) == (grace_ms(60), False)
