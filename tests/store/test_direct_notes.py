"""Control objects of direct streams: an epoch is taken once, and the bucket alone tells who appends."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from coldstream.errors import BadVersionError, CorruptionError, ExpiredEpochError, StreamNotFoundError
from coldstream.manifest.appender import Appender, Opening, WalKind, WalPlace
from coldstream.manifest.entry import Head
from coldstream.manifest.stream import Incarnation, StreamId
from coldstream.store.control import ControlObjects
from coldstream.store.direct_notes import DirectNote, appender_of_notes
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.ports import ObjectStore
from coldstream.units import Epoch, Offset

STREAM = StreamId("名前/%2F", 'orders "\\ \x01', Incarnation("__orders_1763700000000000000"))
LIFE = STREAM.incarnation
OTHER = replace(STREAM, incarnation=Incarnation(LIFE + "1"))
ONE, TWO, TEN = (
    Opening(Epoch(epoch), WalPlace(kind, writer, wal))
    for epoch, kind, writer, wal in ((1, WalKind.S3, "a", 1), (2, WalKind.DISK, "b", 3), (10, WalKind.S3, "a", 2))
)
APPENDER = Appender(Epoch(2), (TWO,), Offset(3), Offset(90), properties=(("größe", '"'), ("owner", "x")))
HEAD = Head(STREAM, 12, appender=APPENDER)


@pytest.fixture
def memory() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def control(memory: MemoryObjects) -> ControlObjects:
    return ControlObjects(memory, Keys("archive/"))


def test_openings_are_read_by_epoch(control: ControlObjects) -> None:
    assert (list(control.openings(LIFE)), control.last_epoch(LIFE)) == ([], 0)
    for opening in (TEN, ONE, TWO):
        control.write_opening(STREAM, opening)
    assert list(control.openings(LIFE)) == [ONE, TWO, TEN]
    assert list(control.openings(LIFE, after=Epoch(2))) == [TEN]
    assert control.last_epoch(LIFE) == 10
    assert list(control.openings(OTHER.incarnation)) == []


def test_an_epoch_is_taken_once(objects: ObjectStore) -> None:
    control = ControlObjects(objects, Keys("direct-notes/"))
    control.write_opening(STREAM, ONE)
    control.write_opening(STREAM, ONE)  # its answer was lost
    for other in (WalPlace(WalKind.S3, "a", 2), WalPlace(WalKind.S3, "b", 1), WalPlace(WalKind.DISK, "a", 1)):
        with pytest.raises(ExpiredEpochError):
            control.write_opening(STREAM, replace(ONE, wal=other))
    assert list(control.openings(LIFE)) == [ONE]
    control.write_opening(OTHER, replace(ONE, wal=TEN.wal))


def test_the_latest_note_is_that_of_the_greatest_revision(control: ControlObjects) -> None:
    assert control.latest_direct(LIFE) is None
    for revision in (100, 9, 12):
        control.write_direct(replace(HEAD, revision=revision, notes_from=4))
    assert control.latest_direct(LIFE) == DirectNote(104, APPENDER)
    assert control.latest_direct(OTHER.incarnation) is None


def test_a_brokers_stream_has_no_such_note(control: ControlObjects) -> None:
    with pytest.raises(StreamNotFoundError):
        control.write_direct(Head(STREAM, 12))


def test_openings_after_the_last_note_are_open() -> None:
    def of(*openings: Opening, note: Appender = APPENDER) -> Appender | None:
        return appender_of_notes(DirectNote(12, note), openings, source="there")

    closed = replace(APPENDER, openings=())
    assert of() == of(ONE, TWO) == APPENDER
    assert of(ONE, TWO, note=closed) == closed
    assert of(TEN, ONE) == replace(APPENDER, epoch=Epoch(10), openings=(TWO, TEN))
    assert of(TEN, note=closed) == replace(closed, epoch=Epoch(10), openings=(TEN,))


def test_openings_of_a_stream_that_nobody_created_are_corrupt() -> None:
    assert appender_of_notes(None, [], source="there") is None
    with pytest.raises(CorruptionError) as caught:
        appender_of_notes(None, [ONE], source="there")
    assert caught.value.source == "there"


Damage = Callable[[dict[str, object]], bytes]


def changed(**values: object) -> Damage:
    return lambda content: json.dumps(content | values).encode()


DAMAGES: list[Damage] = [
    lambda _: b"",
    lambda _: b"\xff",
    lambda _: b"[]",
    lambda content: json.dumps(content).encode()[:-1],
    lambda content: json.dumps(content).encode().replace(b'"epoch"', b'"epoch": 1, "epoch"', 1),
    changed(more=1),
    changed(epoch="2"),
    changed(epoch=True),
    changed(epoch=-1),
    changed(epoch=None),
]


@pytest.mark.parametrize("damage", [*DAMAGES, changed(epoch=3), changed(wal=None), changed(wal={"kind": "s3"})])
def test_an_opening_that_is_not_as_it_was_written_is_corrupt(
    memory: MemoryObjects, control: ControlObjects, damage: Damage
) -> None:
    control.write_opening(STREAM, TWO)
    (key,) = memory.objects
    memory.objects[key] = damage(json.loads(memory.objects[key]))
    with pytest.raises(CorruptionError) as caught:
        list(control.openings(LIFE))
    assert caught.value.source == key


@pytest.mark.parametrize(
    "damage", [*DAMAGES, changed(revision=13), changed(revision="12"), changed(openings=[1]), changed(first=1.0)]
)
def test_a_note_that_is_not_as_it_was_written_is_corrupt(
    memory: MemoryObjects, control: ControlObjects, damage: Damage
) -> None:
    control.write_direct(HEAD)
    (key,) = memory.objects
    memory.objects[key] = damage(json.loads(memory.objects[key]))
    with pytest.raises(CorruptionError) as caught:
        control.latest_direct(LIFE)
    assert caught.value.source == key


@pytest.mark.parametrize("version", [2, 0, "1", None, True])
def test_another_version_is_refused(memory: MemoryObjects, control: ControlObjects, version: object) -> None:
    control.write_direct(HEAD)
    control.write_opening(STREAM, ONE)
    for key in memory.objects:
        memory.objects[key] = changed(version=version)(json.loads(memory.objects[key]))
    with pytest.raises(BadVersionError):
        control.latest_direct(LIFE)
    with pytest.raises(BadVersionError):
        list(control.openings(LIFE))
