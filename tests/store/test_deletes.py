"""The contract of the deletion of many, on every implementation; and what S3 itself is asked and told."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, unescape

import pytest

from coldstream.errors import UnavailableError
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.objects import S3Objects
from coldstream.store.ports import DeleteReport, ObjectStore
from tests.store.test_listings import HOSTILE
from tests.store.wire import Wire, answer, s3_error


def test_many_are_deleted_and_nothing_beside_them(objects: ObjectStore) -> None:
    for key in ("p/1", "p/2", "p/3", "p/10"):
        objects.put(key, b"data")
    assert objects.delete_many(["p/3", "p/1"]) == DeleteReport(("p/3", "p/1"))
    assert list(objects.keys("p/")) == ["p/10", "p/2"]


def test_what_is_gone_already_counts_as_deleted(objects: ObjectStore) -> None:
    assert objects.delete_many(["nothing", "nothing"]) == DeleteReport(("nothing",))
    assert objects.delete_many([]) == DeleteReport()


@pytest.mark.parametrize("key", HOSTILE.values(), ids=HOSTILE)
def test_exactly_the_key_is_deleted(objects: ObjectStore, key: str) -> None:
    others = {f"p/{key}.", "p/a", "p/ ", "p/%", "p/+", f"{key[:5]}"}
    for one in (f"p/{key}", *others):
        objects.put(one, b"data")
    assert objects.delete_many([f"p/{key}"]) == DeleteReport((f"p/{key}",))
    assert set(objects.keys("")) == others


def test_a_bucket_with_versions_keeps_what_is_deleted(versioned: ObjectStore) -> None:
    versioned.put("p/1", b"data")
    assert versioned.delete_many(["p/1"]).deleted == ("p/1",)
    assert versioned.info("p/1") is None
    assert [one.is_delete_marker for one in versioned.versions("p/1")] == [True, False]


@pytest.mark.parametrize("key", ["p/1", HOSTILE["all bytes"]], ids=["plain", "hostile"])
def test_versions_are_deleted_for_good(versioned: ObjectStore, key: str) -> None:
    for data in (b"first", b"second"):
        versioned.put(key, data)
    versioned.put("other", b"data")
    latest, earlier = versioned.versions(key)
    assert versioned.delete_versions([(key, latest.version_id)]) == DeleteReport((key,))
    info = versioned.info(key)
    assert info is not None
    assert info.version_id == earlier.version_id
    versioned.delete(key)
    left = [(one.key, one.version_id) for one in versioned.versions(key)]
    assert len(left) == 2
    assert versioned.delete_versions(left) == DeleteReport((key, key))
    assert list(versioned.versions(key)) == []
    assert [one.key for one in versioned.versions("")] == ["other"]


def test_a_locked_version_is_not_deleted_and_the_others_are(locking: ObjectStore) -> None:
    for key in ("held", "free"):
        locking.put(key, b"data")
    locking.put_legal_hold("held", True)
    (held,), (free,) = locking.versions("held"), locking.versions("free")
    report = locking.delete_versions([("held", held.version_id), ("free", free.version_id)])
    assert report.deleted == ("free",)
    ((key, reason),) = report.failed
    assert key == "held"
    assert f"version {held.version_id}: AccessDenied" in reason
    assert locking.info("held") is not None


@pytest.fixture(scope="module")
def unreached(aws: str) -> S3Objects:
    """A bucket for tests that never reach it."""
    return S3Objects("bucket")


def said(*deleted: str, errors: tuple[tuple[str, str], ...] = ()) -> bytes:
    """An answer to a DeleteObjects."""
    named = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in deleted)
    failed = "".join(
        f"<Error><Key>{key}</Key><Code>{code}</Code><Message>as told</Message></Error>" for key, code in errors
    )
    return f"<DeleteResult>{named}{failed}</DeleteResult>".encode()


def test_only_what_the_answer_names_is_deleted(unreached: S3Objects, delays: list[float]) -> None:
    script = [answer(200, said("a", "other", errors=(("b", "AccessDenied"),)))] + [answer(200, said())] * 2
    with Wire(unreached._client, *script):
        report = unreached.delete_many(["a", "b", "c"])
    assert report.deleted == ("a",)
    assert report.failed == (("b", "AccessDenied: as told"), ("c", "NotNamed: the answer does not name it"))
    assert len(delays) == 2


def test_what_s3_failed_at_is_sent_again_and_nothing_else(unreached: S3Objects, delays: list[float]) -> None:
    first = said("a", errors=(("b", "InternalError"), ("c", "SlowDown"), ("d", "AccessDenied")))
    second = said("c", errors=(("b", "InternalError"),))
    with Wire(unreached._client, *(answer(200, body) for body in (first, second, said("b")))) as seen:
        report = unreached.delete_many(["a", "b", "c", "d"])
    assert report == DeleteReport(("a", "b", "c"), (("d", "AccessDenied: as told"),))  # type: ignore[arg-type]  # equal
    asked = [re.findall("<Key>(.*?)</Key>", request.body.decode()) for request in seen.sent]
    assert asked == [["a", "b", "c", "d"], ["b", "c"], ["b"]]


def test_a_request_that_fails_as_a_whole_is_an_error(unreached: S3Objects, delays: list[float]) -> None:
    with Wire(unreached._client, *[s3_error(503, "SlowDown") for _ in range(9)]), pytest.raises(UnavailableError):
        unreached.delete_many(["a"])


def test_a_key_of_its_own_request_that_is_refused_is_reported(unreached: S3Objects) -> None:
    with Wire(unreached._client, s3_error(403, "AccessDenied"), answer(204)):
        report = unreached.delete_many(["\x01", "\x02"])
    assert report.deleted == ("\x02",)
    assert [key for key, _ in report.failed] == ["\x01"]


def test_twenty_thousand_objects_are_deleted_by_twenty_requests(unreached: S3Objects) -> None:
    keys = [f"p/{number:05} +&%" for number in range(20_000)]
    pages = [answer(200, said(*keys[at : at + 1000])) for at in range(0, 20_000, 1000)]
    with Wire(unreached._client, *pages) as seen:
        assert unreached.delete_many(keys) == DeleteReport(tuple(keys))
    assert len(seen.sent) == 20
    asked = [unescape(key) for request in seen.sent for key in re.findall("<Key>(.*?)</Key>", request.body.decode())]
    assert asked == keys
    double = MemoryObjects()
    double.objects = dict.fromkeys(keys, b"")
    assert double.delete_many(keys) == DeleteReport(tuple(keys))
    assert (double.requests, double.objects) == ({"DeleteObjects": 20}, {})
