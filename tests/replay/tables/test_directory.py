"""Places of tables: one suite for a directory, and buckets in memory and by S3's own API."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coldstream.errors import InvalidQueryError, ObjectNotFoundError, UnavailableError
from coldstream.replay.tables import directory
from coldstream.replay.tables.directory import BucketDirectory, LocalDirectory, TableDirectory, open_directory
from coldstream.store.memory.objects import MemoryObjects


@pytest.fixture(params=["directory", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> TableDirectory:
    match request.param:
        case "directory":
            return LocalDirectory(tmp_path / "not" / "there")
        case "memory":
            return BucketDirectory(MemoryObjects(), "tables/orders/")
        case _:
            return BucketDirectory(request.getfixturevalue("s3_objects"), "tables/orders")


def put(place: TableDirectory, name: str, content: bytes) -> None:
    with place.spool() as spool:
        (spool / "file").write_bytes(content)
        place.put(name, spool / "file")
        assert list(spool.iterdir()) == []


def test_what_is_put_is_there(place: TableDirectory) -> None:
    assert place.names("") == []
    put(place, "stream=a%2Fb/file", b"one")
    assert place.names("") == ["stream=a%2Fb/file"]
    assert place.read("stream=a%2Fb/file") == b"one"


def test_what_is_put_replaces(place: TableDirectory) -> None:
    for content in (b"one", b"another", b"another"):
        put(place, "file", content)
        assert place.read("file") == content
    assert place.names("") == ["file"]


def test_a_file_is_created_once(place: TableDirectory) -> None:
    assert place.create("marks/one", b"first")
    assert not place.create("marks/one", b"second")
    assert place.read("marks/one") == b"first"
    assert place.names("") == ["marks/one"]


def test_a_file_that_is_not_there_cannot_be_read(place: TableDirectory) -> None:
    with pytest.raises(ObjectNotFoundError):
        place.read("nothing")


def test_names_are_those_below_a_directory(place: TableDirectory) -> None:
    for name in ("a/1", "a/b/2", "ab/3"):
        place.create(name, b"x")
    assert place.names("a/") == ["a/1", "a/b/2"]


def test_deleting_is_no_matter_of_how_often(place: TableDirectory) -> None:
    put(place, "file", b"one")
    place.delete("file")
    place.delete("file")
    assert place.names("") == []


def test_the_spool_of_a_killed_process_goes_after_a_day(tmp_path: Path) -> None:
    place = LocalDirectory(tmp_path)
    for name in ("spool-old", "spool-new"):
        (tmp_path / "_coldstream" / name).mkdir(parents=True)
    os.utime(tmp_path / "_coldstream" / "spool-old", (0, 0))
    with place.spool():
        pass
    assert [path.name for path in (tmp_path / "_coldstream").iterdir()] == ["spool-new"]


def test_a_put_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = LocalDirectory(tmp_path)
    put(place, "file", b"one")

    def fail(fd: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(directory.os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        put(place, "file", b"two")
    assert place.names("") == ["file"]
    assert place.read("file") == b"one"


def test_an_object_is_there_until_another_has_replaced_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = MemoryObjects()
    place = BucketDirectory(objects)
    put(place, "file", b"one")

    def fail(key: str, body: bytes) -> None:
        raise UnavailableError("down")

    monkeypatch.setattr(objects, "put", fail)
    with pytest.raises(UnavailableError):
        put(place, "file", b"two")
    assert place.read("file") == b"one"


@pytest.mark.parametrize("path", ["gs://bucket/x", "s3://", "s3:///x"])
def test_a_path_of_another_kind_is_refused(path: str) -> None:
    with pytest.raises(InvalidQueryError, match="path"):
        open_directory(path)


def test_a_path_names_a_bucket_and_a_prefix(aws: str, s3_objects: object) -> None:
    bucket = s3_objects.bucket  # type: ignore[attr-defined]
    assert open_directory(f"s3://{bucket}/a/b").create("mark", b"x")
    assert open_directory(f"s3a://{bucket}").names("") == ["a/b/mark"]
