"""Listings of S3: objects, keys and versions, page by page.

XML 1.0 cannot hold every key, and its parsers change some: a carriage return becomes a line feed. So every listing asks
for URL-encoded keys, and decodes each of them here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import unquote_plus

from coldstream.errors import CorruptionError, ObjectNotFoundError, UnavailableError
from coldstream.manifest.note import NOTE
from coldstream.store.bucket import S3Bucket, border, crc32_of
from coldstream.store.object_values import ListedObject, ObjectInfo, ObjectVersion, UnfinishedUpload
from coldstream.units import TimestampMs


class S3Listings(S3Bucket):
    """Implement the listings of `ports.ObjectStore`, and its HEAD."""

    def info(self, key: str) -> ObjectInfo | None:
        """Return what a HEAD says of the object at a key, None if there is none."""
        try:
            with border("HEAD", key):
                answer = self._client.head_object(Bucket=self._bucket, Key=key, ChecksumMode="ENABLED")
        except ObjectNotFoundError:
            return None
        version_id = answer.get("VersionId")
        return ObjectInfo(
            answer["ContentLength"],
            answer["ETag"],
            crc32_of(answer.get("ChecksumCRC32")),
            milliseconds(answer["LastModified"]),
            class_of(answer),
            None if version_id == "null" else version_id,
            answer.get("ObjectLockLegalHoldStatus") == "ON",
            answer.get("Metadata", {}).get(NOTE),
        )

    def keys(self, prefix: str) -> Iterator[str]:
        """Yield the keys that begin with a prefix, in order; one listing a thousand."""
        return (found.key for found in self.listed(prefix))

    def listed(self, prefix: str, *, after: str | None = None) -> Iterator[ListedObject]:
        """Yield the objects under a prefix, from the first key past `after`; one listing a thousand."""
        start = {} if after is None else {"StartAfter": after}
        for page in self._pages(
            self._client.list_objects_v2, prefix, start, {"ContinuationToken": "NextContinuationToken"}
        ):
            for found in page.get("Contents", ()):
                key = decoded(page, found["Key"])
                modified = milliseconds(found["LastModified"])
                yield ListedObject(key, found["Size"], found["ETag"], modified, class_of(found))

    def versions(self, prefix: str) -> Iterator[ObjectVersion]:
        """Yield versions and delete markers under a prefix, the newest of each key first; one listing a thousand."""
        follow = {"KeyMarker": "NextKeyMarker", "VersionIdMarker": "NextVersionIdMarker"}
        for page in self._pages(self._client.list_object_versions, prefix, {}, follow):
            versions = [_version(page, found) for found in page.get("Versions", ())]
            markers = [_version(page, found) for found in page.get("DeleteMarkers", ())]
            # S3 mixes both, in this order; the SDK hands them out apart.
            yield from sorted(versions + markers, key=lambda one: (one.key, not one.is_latest, -one.last_modified))

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Yield the unfinished multipart uploads under a prefix; one listing a thousand of them."""
        follow = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
        for page in self._pages(self._client.list_multipart_uploads, prefix, {}, follow):
            for found in page.get("Uploads", ()):
                yield UnfinishedUpload(decoded(page, found["Key"]), found["UploadId"], milliseconds(found["Initiated"]))

    def _pages(
        self, call: Callable[..., Any], prefix: str, start: Mapping[str, str], follow: Mapping[str, str]
    ) -> Iterator[Mapping[str, Any]]:
        """Yield the pages of a listing; `follow` names the fields of a page that the next request repeats."""
        where = dict(start)
        while True:
            with border("list of", prefix):
                page = call(Bucket=self._bucket, Prefix=prefix, EncodingType="url", **where)
            yield page
            if not page["IsTruncated"]:
                return
            following = {
                parameter: decoded(page, page[field]) if field == "NextKeyMarker" else page[field]
                for parameter, field in follow.items()
                if page.get(field)
            }
            # The same page again, and again, would look like a bucket without an end.
            if not following or following == where:
                raise UnavailableError(f"list of {prefix}: a page that does not say where the next one begins")
            where = following


def decoded(page: Mapping[str, Any], text: str) -> str:
    """Decode a key of a page, if the page says that its keys are encoded. Raises CorruptionError."""
    if page.get("EncodingType") != "url":
        return text
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError as err:
        raise CorruptionError(f"listing of {page.get('Name')}", 0, f"{text[:200]!r} is no encoded key") from err


def milliseconds(moment: datetime) -> TimestampMs:
    """Return a time of S3's in milliseconds."""
    return TimestampMs(round(moment.timestamp() * 1000))


def class_of(answer: Mapping[str, Any]) -> str | None:
    """Return the storage class that an answer says, None for STANDARD."""
    found: str = answer.get("StorageClass", "STANDARD")
    return None if found == "STANDARD" else found


def _version(page: Mapping[str, Any], found: Mapping[str, Any]) -> ObjectVersion:
    return ObjectVersion(
        decoded(page, found["Key"]),
        found["VersionId"],
        found["IsLatest"],
        "ETag" not in found,
        found.get("Size", 0),
        found.get("ETag", ""),
        milliseconds(found["LastModified"]),
    )
