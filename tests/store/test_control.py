"""Control objects: what was written is read back, and nothing else is taken for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from coldstream.errors import BadLengthError, BadVersionError, CorruptionError, InvalidNameError
from coldstream.manifest.access import Grant
from coldstream.manifest.cluster import Cluster
from coldstream.manifest.entry import Erasure, ErasureState, Head, Hold, Loss, StorageClass
from coldstream.manifest.policy import Policy
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.control import MAX_NOTE_BYTES, ClusterBinding, ControlObjects, FloorNote, HoldRelease
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.units import MAX_OFFSET, Offset, TimestampMs

STREAM = StreamId("名前/%2F", 'orders "\\ \x01', Incarnation("__orders_1763700000000000000"))
INCARNATION = STREAM.incarnation
OTHER = Incarnation(INCARNATION + "1")
AT = TimestampMs(1_784_000_000_000)

HOLD = Hold("audit-1", Offset(0), None, "a case é", "someone", AT)
RANGE = Hold("audit-2", Offset(5), Offset(MAX_OFFSET + 1), "", "someone", AT)
LOSS = Loss(Offset(7), Offset(9), "the disk of a node", AT)
ERASURE = Erasure(
    "e-1", Offset(0), Offset(10), "key = 'x'", "asked", "someone", AT, 3, "sha256:00", ErasureState.RUNNING, Offset(4)
)
HEAD = Head(STREAM, 12, next_offset=Offset(90), floor=Offset(90), generation=3, deleted_at=AT, purge_at=AT)
GRANT = Grant("arn:aws:iam::123456789012:role/*", "%2F/orders*", AT)
POLICY = Policy("old", "%2F/*", 5, 1000, storage_class=StorageClass.GLACIER_IR, storage_class_age_ms=10)


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def control(objects: MemoryObjects) -> ControlObjects:
    return ControlObjects(objects, Keys("archive/"))


def test_the_names_of_a_stream_are_kept(control: ControlObjects) -> None:
    assert control.stream(INCARNATION) is None
    control.write_stream(STREAM)
    control.write_stream(STREAM)
    assert control.stream(INCARNATION) == STREAM
    assert control.stream(OTHER) is None


def test_floors_are_read_by_revision(control: ControlObjects) -> None:
    for revision in (100, 9, 12):
        control.write_floor(replace(HEAD, revision=revision))
    control.write_floor(replace(HEAD, stream=replace(STREAM, incarnation=OTHER)))
    floors = list(control.floors(INCARNATION))
    assert [one.revision for one in floors] == [9, 12, 100]
    assert floors[1] == FloorNote(12, Offset(90), None, 3, None, AT, AT, None, None)


def test_the_latest_floor_is_that_of_the_greatest_revision(control: ControlObjects) -> None:
    assert control.latest_floor(INCARNATION) is None
    for revision in (100, 9, 12):
        control.write_floor(replace(HEAD, revision=revision))
    latest = control.latest_floor(INCARNATION)
    assert latest is not None
    assert latest.revision == 100


def test_holds_and_their_releases_are_told_apart(control: ControlObjects) -> None:
    for hold in (RANGE, HOLD):
        control.write_hold(INCARNATION, hold)
    control.write_release(INCARNATION, HOLD, "someone else")
    assert list(control.holds(INCARNATION)) == [HOLD, RANGE]
    assert list(control.releases(INCARNATION)) == [HoldRelease("audit-1", "someone else")]
    assert list(control.holds(OTHER)) == []


def test_losses_and_erasures_are_kept(control: ControlObjects) -> None:
    control.write_loss(INCARNATION, LOSS)
    control.write_erasure(INCARNATION, ERASURE)
    done = replace(ERASURE, state=ErasureState.DONE, reached=Offset(10))
    control.write_erasure(INCARNATION, done)
    assert list(control.losses(INCARNATION)) == [LOSS]
    assert list(control.erasures(INCARNATION)) == [done]


def test_grants_policies_and_clusters_are_of_no_stream(control: ControlObjects) -> None:
    control.write_grant(GRANT)
    control.write_policy(replace(POLICY, priority=1))
    control.write_policy(POLICY)
    control.write_cluster("/", "orders", Cluster("eu"))
    assert list(control.grants()) == [GRANT]
    assert list(control.policies()) == [POLICY]
    assert list(control.clusters()) == [ClusterBinding("/", "orders", Cluster("eu"))]
    control.delete_grant(GRANT)
    control.delete_grant(GRANT)
    control.delete_policy(POLICY.name)
    assert list(control.grants()) == []
    assert list(control.policies()) == []


def test_an_id_that_no_key_can_hold_is_refused(control: ControlObjects) -> None:
    for name in ("", "a/b", "a.b", "é", "x" * 129):
        with pytest.raises(InvalidNameError):
            control.write_hold(INCARNATION, replace(HOLD, id=name))


def test_what_was_deleted_since_it_was_listed_is_left_out(objects: MemoryObjects, control: ControlObjects) -> None:
    for name in ("one", "two", "three"):
        control.write_policy(replace(POLICY, name=name))
    policies = control.policies()
    first = next(policies)
    for name in {"one", "two", "three"} - {first.name}:
        control.delete_policy(name)
    assert list(policies) == []


Damage = Callable[[dict[str, object]], bytes]


def changed(**values: object) -> Damage:
    return lambda content: json.dumps(content | values).encode()


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: b"\xff",
        lambda content: b"[]",
        lambda content: b"[" * 100_000,
        lambda content: json.dumps(content).encode()[:-1],
        lambda content: json.dumps(content).encode().replace(b'"id"', b'"by": "x", "id"'),
        lambda content: json.dumps({name: value for name, value in content.items() if name != "by"}).encode(),
        changed(more=1),
        changed(first_offset="0"),
        changed(first_offset=True),
        changed(first_offset=0.0),
        changed(first_offset=None),
        changed(by=None),
        changed(id="other"),
    ],
)
def test_what_is_not_as_it_was_written_is_corrupt(
    objects: MemoryObjects, control: ControlObjects, damage: Damage
) -> None:
    control.write_hold(INCARNATION, HOLD)
    (key,) = objects.objects
    objects.objects[key] = damage(json.loads(objects.objects[key]))
    with pytest.raises(CorruptionError) as caught:
        list(control.holds(INCARNATION))
    assert caught.value.source == key


@pytest.mark.parametrize("version", [2, 0, "1", None, True, 1.0])
def test_another_version_is_refused(objects: MemoryObjects, control: ControlObjects, version: object) -> None:
    control.write_stream(STREAM)
    (key,) = objects.objects
    objects.objects[key] = changed(version=version)(json.loads(objects.objects[key]))
    with pytest.raises(BadVersionError):
        control.stream(INCARNATION)


def test_a_state_or_a_class_that_nobody_knows_is_corrupt(objects: MemoryObjects, control: ControlObjects) -> None:
    control.write_erasure(INCARNATION, ERASURE)
    control.write_policy(POLICY)
    for key, name in zip(sorted(objects.objects), ("storage_class", "state"), strict=True):
        content = json.loads(objects.objects[key])
        assert name in content
        objects.objects[key] = changed(**{name: "ICE"})(content)
    reads: tuple[Callable[[], Iterator[object]], ...] = (lambda: control.erasures(INCARNATION), control.policies)
    for read in reads:
        with pytest.raises(CorruptionError):
            list(read())


def test_an_object_that_was_moved_to_another_key_is_corrupt(objects: MemoryObjects, control: ControlObjects) -> None:
    control.write_stream(STREAM)
    key = control.keys.stream_note(OTHER)
    objects.objects[key] = objects.objects[control.keys.stream_note(INCARNATION)]
    with pytest.raises(CorruptionError, match="another key"):
        control.stream(OTHER)


def test_an_object_too_large_for_one_is_not_loaded(objects: MemoryObjects, control: ControlObjects) -> None:
    control.write_stream(STREAM)
    (key,) = objects.objects
    objects.objects[key] += b" " * MAX_NOTE_BYTES
    with pytest.raises(BadLengthError):
        control.stream(INCARNATION)
