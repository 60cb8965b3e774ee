"""The contract of listings, on every implementation; and what S3 itself is asked and told."""

from __future__ import annotations

import io
import time
from urllib.parse import parse_qs, quote_plus, urlsplit
from xml.sax.saxutils import escape
from zlib import crc32

import pytest

from coldstream.errors import CorruptionError, UnavailableError
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.objects import S3Objects
from coldstream.store.ports import ListedObject, ObjectStore, ObjectVersion
from coldstream.units import TimestampMs
from tests.store.wire import Wire, answer

HOSTILE = {
    "url": "a b+c%2F?d&e=f#g",
    "percent": "100%",
    "escape": "%25",
    "escapes": "%2B+ %20",
    "xml": "<key>&amp;\"'</key>",
    "line feed": "line\nfeed",
    "carriage return": "carriage\rreturn",
    "tab": "tab\t",
    "controls": "\x01\x02\x1f\x7f",
    "separators": "\x85\u2028\ufffd",
    "planes": "ünïcode/名前/😀",
    "latin": "Ã¼ like UTF-8 read twice",
    "spaces": "  spaces around  ",
    "slashes": "a//b",
    "backslash": "back\\slash",
    "all bytes": "".join(map(chr, range(1, 256))).replace("/", "").replace("\n", ""),
}
"""Keys that a listing or a deletion may decode twice, cut, or not be able to say."""

MODIFIED = "2026-07-14T03:33:20.000Z"
MODIFIED_MS = TimestampMs(1_784_000_000_000)


def put(objects: ObjectStore, key: str, data: bytes = b"data") -> None:
    objects.put_new(key, io.BytesIO(data), size_bytes=len(data), crc32=crc32(data))


def test_a_listing_says_what_a_head_says(objects: ObjectStore) -> None:
    put(objects, "a/1", b"four")
    (found,) = objects.listed("a/")
    info = objects.info("a/1")
    assert info is not None
    # A listing may have the milliseconds of which a HEAD has the seconds.
    assert found.last_modified // 1000 * 1000 == info.last_modified
    assert abs(info.last_modified - time.time() * 1000) < 60_000
    assert (found.key, found.size_bytes, found.etag, found.storage_class) == ("a/1", 4, info.etag, None)


def test_a_listing_has_the_prefix_in_order_of_the_keys_bytes(objects: ObjectStore) -> None:
    keys = ["p/A", "p/Z", "p/a", "p/é", "p/\uffee", "p/😀"]
    for key in (*reversed(keys), "o/1", "q/1"):
        put(objects, key)
    assert [found.key for found in objects.listed("p/")] == keys
    assert keys == sorted(keys, key=str.encode)


def test_a_listing_begins_past_a_key(objects: ObjectStore) -> None:
    for key in ("p/1", "p/2", "p/3 +%", "p/4"):
        put(objects, key)
    assert [found.key for found in objects.listed("p/", after="p/2")] == ["p/3 +%", "p/4"]
    assert [found.key for found in objects.listed("p/", after="p/3 +%")] == ["p/4"]
    assert [found.key for found in objects.listed("p/", after="p/25")] == ["p/3 +%", "p/4"]
    assert list(objects.listed("p/", after="p/4")) == []


@pytest.mark.parametrize("key", HOSTILE.values(), ids=HOSTILE)
def test_a_listed_key_is_the_objects_own(objects: ObjectStore, key: str) -> None:
    put(objects, f"p/{key}")
    assert [found.key for found in objects.listed("p/")] == [f"p/{key}"]
    assert [found.key for found in objects.listed(f"p/{key}")] == [f"p/{key}"]
    assert list(objects.keys("p/")) == [f"p/{key}"]


def test_versions_of_a_bucket_that_keeps_none_are_its_objects(objects: ObjectStore) -> None:
    put(objects, "p/1")
    put(objects, "p/2")
    found = list(objects.versions("p/"))
    assert [(one.key, one.version_id, one.is_latest, one.is_delete_marker) for one in found] == [
        ("p/1", "null", True, False),
        ("p/2", "null", True, False),
    ]


def test_versions_and_delete_markers_are_listed_the_newest_first(versioned: ObjectStore) -> None:
    versioned.put("p/1", b"first")
    versioned.put("p/1", b"second one")
    versioned.put("p/2", b"other")
    versioned.delete("p/1")
    marker, second, first, other = versioned.versions("p/")
    assert [one.key for one in (marker, second, first, other)] == ["p/1", "p/1", "p/1", "p/2"]
    assert [one.is_latest for one in (marker, second, first, other)] == [True, False, False, True]
    assert (marker.is_delete_marker, marker.size_bytes, marker.etag) == (True, 0, "")
    assert {second.size_bytes, first.size_bytes} == {10, 5}
    assert len({marker.version_id, second.version_id, first.version_id}) == 3


def test_an_object_knows_its_version(versioned: ObjectStore, objects: ObjectStore) -> None:
    for store in (versioned, objects):
        put(store, "key")
    (version,) = versioned.versions("key")
    info, plain = versioned.info("key"), objects.info("key")
    assert info is not None
    assert plain is not None
    assert (info.version_id, plain.version_id) == (version.version_id, None)


def page(*keys: str, following: str = "", encoding: str = "<EncodingType>url</EncodingType>") -> bytes:
    """An answer to a ListObjectsV2, as S3 encodes it."""
    contents = "".join(
        f"<Contents><Key>{key}</Key><LastModified>{MODIFIED}</LastModified><ETag>&quot;e&quot;</ETag><Size>1</Size>"
        "<StorageClass>GLACIER</StorageClass></Contents>"
        for key in keys
    )
    more = f"<NextContinuationToken>{following}</NextContinuationToken>" if following else ""
    truncated = str(bool(following)).lower()
    inside = f"<IsTruncated>{truncated}</IsTruncated>{more}{encoding}{contents}"
    return f"<ListBucketResult>{inside}</ListBucketResult>".encode()


@pytest.fixture(scope="module")
def unreached(aws: str) -> S3Objects:
    """A bucket for tests that never reach it."""
    return S3Objects("bucket")


def test_keys_are_decoded_once(unreached: S3Objects) -> None:
    # S3 writes a space as "+", and "+" as %2B.
    with Wire(unreached._client, answer(200, page("a+b%2Bc%2525%252F%01"))) as seen:
        (found,) = unreached.listed("a")
    assert found == ListedObject("a b+c%25%2F\x01", 1, '"e"', MODIFIED_MS, "GLACIER")
    assert parse_qs(urlsplit(seen.sent[0].url).query)["encoding-type"] == ["url"]


@pytest.mark.parametrize("key", HOSTILE.values(), ids=HOSTILE)
def test_keys_that_s3_encodes_come_back_as_they_were(unreached: S3Objects, key: str) -> None:
    with Wire(unreached._client, answer(200, page(quote_plus(key, safe="/*")))):
        assert [found.key for found in unreached.listed("")] == [key]


def test_keys_of_a_store_that_does_not_encode_are_left_as_they_are(unreached: S3Objects) -> None:
    with Wire(unreached._client, answer(200, page(escape("a+b%2B"), encoding=""))):
        assert [found.key for found in unreached.listed("a")] == ["a+b%2B"]


def test_a_key_that_is_no_text_is_corrupt(unreached: S3Objects) -> None:
    with Wire(unreached._client, answer(200, page("a%ff"))), pytest.raises(CorruptionError, match="a%ff"):
        list(unreached.listed("a"))


def test_a_page_that_leads_nowhere_ends_the_listing_with_an_error(unreached: S3Objects) -> None:
    endless = page("a").replace(b"false", b"true")
    with Wire(unreached._client, answer(200, endless)), pytest.raises(UnavailableError, match="next one begins"):
        list(unreached.listed("a"))
    again = [answer(200, page("a", following="1")) for _ in range(2)]
    with Wire(unreached._client, *again), pytest.raises(UnavailableError, match="next one begins"):
        list(unreached.listed("a"))


def test_twenty_thousand_objects_are_listed_by_twenty_requests(unreached: S3Objects) -> None:
    keys = [f"p/{number:05}" for number in range(20_000)]
    pages = [
        answer(200, page(*keys[at : at + 1000], following=str(at) if at < 19_000 else ""))
        for at in range(0, 20_000, 1000)
    ]
    with Wire(unreached._client, *pages) as seen:
        assert [found.key for found in unreached.listed("p/")] == keys
    assert len(seen.sent) == 20
    double = MemoryObjects()
    double.objects = dict.fromkeys(keys, b"")
    assert [found.key for found in double.listed("p/")] == keys
    assert double.requests == {"ListObjectsV2": 20}


def test_versions_go_on_after_the_decoded_marker(unreached: S3Objects) -> None:
    version = (
        "<Version><Key>a%2Bb</Key><VersionId>v1</VersionId><IsLatest>true</IsLatest><ETag>e</ETag><Size>1</Size>"
        f"<LastModified>{MODIFIED}</LastModified></Version>"
    )
    first = (
        "<ListVersionsResult><IsTruncated>true</IsTruncated><EncodingType>url</EncodingType>"
        f"<NextKeyMarker>a%2Bb</NextKeyMarker><NextVersionIdMarker>v1</NextVersionIdMarker>{version}</ListVersionsResult>"
    )
    last = "<ListVersionsResult><IsTruncated>false</IsTruncated></ListVersionsResult>"
    with Wire(unreached._client, answer(200, first.encode()), answer(200, last.encode())) as seen:
        (found,) = unreached.versions("a")
    assert found == ObjectVersion("a+b", "v1", True, False, 1, "e", MODIFIED_MS)
    query = parse_qs(urlsplit(seen.sent[1].url).query)
    assert (query["key-marker"], query["version-id-marker"]) == (["a+b"], ["v1"])
