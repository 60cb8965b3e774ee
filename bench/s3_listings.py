"""Listings and deletions of many objects, as the benchmark's S3 server answers them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from urllib.parse import quote
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from bench.s3_store import Store

PAGE = 1000


def list_objects(store: Store, bucket: str, parameters: Mapping[str, str]) -> str:
    """Answer ListObjectsV2: `prefix`, `delimiter`, `start-after`, `max-keys`, and pages by the key they end with."""
    prefix, delimiter = parameters.get("prefix", ""), parameters.get("delimiter", "")
    after = parameters.get("continuation-token") or parameters.get("start-after", "")
    most = min(int(parameters.get("max-keys", PAGE)), PAGE)
    is_encoded = parameters.get("encoding-type") == "url"

    def text(key: str) -> str:
        return quote(key, safe="/") if is_encoded else escape(key)

    found: list[str] = []
    groups: list[str] = []
    last = ""
    is_truncated = False
    for key in store.keys(f"/{bucket}/", prefix):
        group = _group(key, prefix, delimiter)
        # A page that ended with a group goes on after all of it.
        if key <= after or (group and group <= after) or group in groups:
            continue
        if len(found) + len(groups) == most:
            is_truncated = True
            break
        last = group or key
        if group:
            groups.append(group)
        elif (stored := store.get(f"/{bucket}/{key}")) is not None:
            modified = dt.datetime.fromtimestamp(stored.last_modified, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
            found.append(
                f"<Contents><Key>{text(key)}</Key><Size>{stored.body.size_bytes}</Size>"
                f"<ETag>{escape(stored.etag)}</ETag><LastModified>{modified}</LastModified>"
                "<StorageClass>STANDARD</StorageClass></Contents>"
            )
    listed = [
        f"<Name>{escape(bucket)}</Name><Prefix>{text(prefix)}</Prefix><MaxKeys>{most}</MaxKeys>",
        f"<KeyCount>{len(found) + len(groups)}</KeyCount><IsTruncated>{str(is_truncated).lower()}</IsTruncated>",
        "<EncodingType>url</EncodingType>" if is_encoded else "",
        f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if is_truncated else "",
        *found,
        *(f"<CommonPrefixes><Prefix>{text(group)}</Prefix></CommonPrefixes>" for group in groups),
    ]
    return f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{"".join(listed)}</ListBucketResult>'


def keys_to_delete(request: bytes) -> Sequence[str]:
    """Return the keys that a DeleteObjects names."""
    return [one.text or "" for one in ET.fromstring(request).iterfind("{*}Object/{*}Key")]  # noqa: S314  our clients'


def describe_deleted(keys: Sequence[str]) -> str:
    """Return the answer of a DeleteObjects that has deleted these keys."""
    return f"<DeleteResult>{''.join(f'<Deleted><Key>{escape(key)}</Key></Deleted>' for key in keys)}</DeleteResult>"


def _group(key: str, prefix: str, delimiter: str) -> str:
    """Return what keys up to the delimiter after the prefix have in common, "" if it does not come."""
    if not delimiter or (at := key.find(delimiter, len(prefix))) < 0:
        return ""
    return key[: at + len(delimiter)]
