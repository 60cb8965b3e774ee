from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

import pytest

from coldstream.errors import BadVersionError, CorruptionError, ShardChangeError
from coldstream.manifest.shard_changes import bound, doubled, identified, replaced, sealed
from coldstream.manifest.shard_events import (
    MAX_JSON_BYTES,
    ShardEvent,
    ShardEventKind,
    event_of_map,
    map_bytes,
    map_of,
)
from coldstream.manifest.shard_map import MAX_PARTITIONS, Partition, ShardHash, ShardMap
from coldstream.manifest.state_item import MAX_STATE_BYTES
from coldstream.manifest.stream import Incarnation
from coldstream.units import MAX_OFFSET, Offset, TimestampMs
from tests.manifest.shard_samples import AT, bound_map, named, sample_map

EVENT = ShardEvent(4, AT, ShardEventKind.SEAL, "anna", "gesiegelt für immer")


def whole_map() -> ShardMap:
    """Return a map in which every field is set, and names are hostile."""
    there = doubled(bound_map(1, name="größe\0#"), [Partition(0, "\n'🐇", "rabbit@a", 3, "eu")], '{"ü":1}', AT)
    there = sealed(bound(there, AT), {0: Offset(MAX_OFFSET)})
    life = Incarnation("__x_1763700000000000000")
    return identified(there, {0: life, 1: life}, deleted={0: TimestampMs(-1)}, starts={1: Offset(9)})


def packed(content: object) -> bytes:
    return b"\1" + zlib.compress(json.dumps(content).encode())


def content_of(found: ShardMap, event: ShardEvent | None = None) -> Any:
    return json.loads(zlib.decompress(map_bytes(found, event)[1:]))


@pytest.mark.parametrize("found", [sample_map(), bound_map(5), whole_map()])
def test_a_map_comes_back_as_it_was_encoded(found: ShardMap) -> None:
    assert map_of(map_bytes(found), source="x") == found


def test_an_event_comes_back_with_the_map_after_it() -> None:
    found = replace(whole_map(), revision=4)
    data = map_bytes(found, EVENT)
    assert event_of_map(data, source="x") == (EVENT, found)
    assert map_of(data, source="x") == found


def test_the_same_map_has_the_same_bytes() -> None:
    assert map_bytes(whole_map()) == map_bytes(map_of(map_bytes(whole_map()), source="x"))


def test_defaults_are_left_out() -> None:
    content = content_of(sample_map(1))["map"]
    assert content["partitions"] == [{"number": 0, "name": "orders-0"}]
    assert "lineage" not in content


def test_every_truncation_is_corruption() -> None:
    data = map_bytes(replace(whole_map(), revision=4), EVENT)
    for size in range(len(data)):
        with pytest.raises(CorruptionError):
            event_of_map(data[:size], source="x")


def test_bytes_after_the_end_are_corruption() -> None:
    with pytest.raises(CorruptionError, match="does not end"):
        map_of(map_bytes(sample_map()) + b"\0", source="x")


@pytest.mark.parametrize("version", [0, 2, 255])
def test_another_version_is_refused_by_its_number(version: int) -> None:
    with pytest.raises(BadVersionError, match=f"{version:02x}"):
        map_of(bytes((version,)) + map_bytes(sample_map())[1:], source="item x")


def test_an_event_of_another_revision_is_corruption() -> None:
    with pytest.raises(CorruptionError, match="no event"):
        event_of_map(map_bytes(sample_map(), EVENT), source="x")
    with pytest.raises(CorruptionError, match="no event"):
        event_of_map(map_bytes(sample_map()), source="x")


def test_a_bomb_is_not_inflated() -> None:
    with pytest.raises(CorruptionError, match="does not end"):
        map_of(b"\1" + zlib.compress(bytes(MAX_JSON_BYTES + 1)), source="x")


@pytest.mark.parametrize(
    "content",
    [None, [], {}, 7, "map", {"map": None}, {"map": []}, {"map": {}}, {"map": {"kind": "streams"}}, [[["map"]]]],
    ids=repr,
)
def test_other_json_is_corruption(content: object) -> None:
    with pytest.raises(CorruptionError):
        map_of(packed(content), source="x")


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000, b"NaN"])
def test_what_is_no_json_is_corruption(text: bytes) -> None:
    with pytest.raises(CorruptionError):
        map_of(b"\1" + zlib.compress(text), source="x")


@pytest.mark.parametrize("value", ["1", True, 1.0, None, [], {}, -1, "\ud800", 1 << 70])
@pytest.mark.parametrize(
    "place",
    [
        ("kind",),
        ("revision",),
        ("name",),
        ("definition",),
        ("versions",),
        ("versions", 0, "hash"),
        ("versions", 0, "version"),
        ("versions", 0, "partitions"),
        ("versions", 0, "partitions", 0),
        ("versions", 0, "since"),
        ("partitions",),
        ("partitions", 0, "number"),
        ("partitions", 0, "weight"),
        ("lineage",),
        ("lineage", 0, "child"),
        ("lineage", 0, "seal"),
        ("more",),
        ("partitions", 0, "more"),
    ],
    ids=str,
)
def test_a_field_of_another_type_is_corruption_or_a_map(place: tuple[str | int, ...], value: object) -> None:
    content = content_of(whole_map())
    there = content["map"]
    for step in place[:-1]:
        there = there[step]
    there[place[-1]] = value
    try:
        found = map_of(packed(content), source="x")
    except CorruptionError:
        return
    # What is taken has the types of its fields: it is the same after another round.
    assert map_of(map_bytes(found), source="x") == found


@pytest.mark.parametrize("value", ["1", True, 1.0, [], {}])
@pytest.mark.parametrize(
    "place",
    [
        ("revision",),
        ("versions", 0, "version"),
        ("versions", 0, "partitions", 0),
        ("partitions", 0, "number"),
        ("partitions", 0, "weight"),
        ("lineage", 0, "child"),
        ("lineage", 0, "seal"),
    ],
    ids=str,
)
def test_what_is_no_whole_number_where_one_belongs_is_corruption(place: tuple[str | int, ...], value: object) -> None:
    content = content_of(whole_map())
    there = content["map"]
    for step in place[:-1]:
        there = there[step]
    there[place[-1]] = value
    with pytest.raises(CorruptionError):
        map_of(packed(content), source="x")


@pytest.mark.parametrize("kind", ["", "kill", None, 1])
def test_an_event_of_an_unknown_kind_is_corruption(kind: object) -> None:
    content = content_of(sample_map(), replace(EVENT, revision=1))
    content["event"]["kind"] = kind
    with pytest.raises(CorruptionError):
        event_of_map(packed(content), source="x")


def test_a_map_of_1024_partitions_fits_an_item_with_its_lineage() -> None:
    half = bound_map(MAX_PARTITIONS // 2, name="customer-orders.europe")
    found = doubled(half, named(range(512, 1024), "customer-orders.europe"), "x" * 2000, AT)
    lives = {n: Incarnation(f"__customer-orders_europe-{n}_17637000{n * 7919:011}") for n in range(MAX_PARTITIONS)}
    found = identified(sealed(bound(found, AT), {n: Offset(n * 104_729 % 999_983) for n in range(512)}), lives)
    data = map_bytes(found, EVENT)
    assert map_of(data, source="x") == found
    assert len(data) < MAX_STATE_BYTES / 5


def test_a_replacement_of_256_partitions_by_256_fits_an_item() -> None:
    found = bound(replaced(bound_map(256), named(range(256, 512)), ShardHash.MURMUR3, "{}", AT), AT)
    found = sealed(found, {n: Offset(n * 104_729**2) for n in range(256)})
    data = map_bytes(found, EVENT)
    assert len(data) <= MAX_STATE_BYTES
    assert map_of(data, source="x") == found


def test_a_map_that_no_item_can_hold_is_refused_in_words() -> None:
    names = [
        Partition(n, "".join(chr(33 + (n * 7919 + i * i * 104_729 + i) % 90) for i in range(250)) + f"{n}"[:5])
        for n in range(1024)
    ]
    with pytest.raises(ShardChangeError, match="fewer partitions, or shorter names"):
        map_bytes(
            replace(
                sample_map(),
                definition="".join(chr(0x4E00 + i * 7919 % 20_000) for i in range(200_000)),
                partitions=tuple(names),
            )
        )
