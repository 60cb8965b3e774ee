"""A writer that travels: what it carries, and that it writes where it is told to."""

from __future__ import annotations

import os
import pickle

import pytest

from coldstream.compact import remote_writer
from coldstream.compact.remote_writer import RemoteWriter
from coldstream.compact.task import CompactionTask
from coldstream.compact.write import MergedFragment
from coldstream.manifest.entry import Encoding
from coldstream.manifest.groups import Group
from tests.compact.samples import small
from tests.support.archive import STREAM

PLACES = {
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_REGION": "eu-west-1",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
    "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:2",
}


def test_it_carries_where_aws_is_and_no_credentials() -> None:
    secret = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token", "HOME": "/"}
    writer = RemoteWriter.from_environment("bucket", "prefix/", PLACES | secret)
    assert writer == RemoteWriter("bucket", "prefix/", tuple(PLACES.items()))
    assert pickle.loads(pickle.dumps(writer)) == writer


def test_what_is_not_set_is_not_carried() -> None:
    assert RemoteWriter.from_environment("bucket", "", {"AWS_REGION": "eu-west-1"}).variables == (
        ("AWS_REGION", "eu-west-1"),
    )


def test_it_writes_below_its_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    made = small()
    monkeypatch.setattr(remote_writer, "_objects", lambda _: made.objects)
    task = CompactionTask(STREAM, Group(made.group.entries), Encoding.IDENTITY, level=3)
    written = RemoteWriter("bucket", "prefix/", ()).write(task)
    assert isinstance(written, MergedFragment)
    assert written.entry.key.startswith("prefix/")
    assert written.entry.key in made.objects.objects


def test_a_process_that_it_comes_to_finds_aws_where_it_was_made_and_connects_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Objects:
        """Keeps what a client would see as it is made."""

        def __init__(self, bucket: str) -> None:
            made.append((bucket, dict(os.environ)))

    made: list[tuple[str, dict[str, str]]] = []
    monkeypatch.setattr(remote_writer, "S3Objects", Objects)
    monkeypatch.setattr(os, "environ", {"HOME": "/", "AWS_REGION": "us-east-1"})
    writer = RemoteWriter("a bucket of this test", "", tuple(PLACES.items()))
    assert remote_writer._objects(writer) is remote_writer._objects(pickle.loads(pickle.dumps(writer)))
    assert made == [("a bucket of this test", {"HOME": "/"} | PLACES)]
