"""One bucket in S3 by botocore: its client, and the border at which the SDK's errors become ours."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal

import botocore.session
from botocore.config import Config
from botocore.exceptions import ClientError, FlexibleChecksumError, IncompleteReadError, ResponseStreamingError
from urllib3.exceptions import HTTPError

from coldstream.errors import (
    BadCrcError,
    ConflictError,
    NotRestoredError,
    ObjectExistsError,
    ObjectNotFoundError,
    ReplacedError,
)
from coldstream.manifest.note import NOTE
from coldstream.retry import retrying
from coldstream.store.answers import refuse_broken_answers
from coldstream.store.awserrors import SDK_ERRORS, error_code, from_aws
from coldstream.store.clock import AwsClock
from coldstream.store.models import share_models
from coldstream.store.presigning import presign_by_heard_time
from coldstream.store.signing import sign_deletions_by_claim

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

CONNECT_TIMEOUT_S = 3
READ_TIMEOUT_S = 20
ATTEMPTS = 4
"""Attempts of one request by the SDK (retry mode `standard`: exponential backoff with jitter)."""

MORE_ATTEMPTS = 3
"""Attempts if the SDK does not retry a failure: a body that breaks off, and a PUT that met another on its key."""

_NO_OBJECT = frozenset({"NoSuchKey", "NoSuchVersion", "404"})
_ANOTHER_ETAG = frozenset({"PreconditionFailed", "412"})
_ARCHIVED = frozenset({"InvalidObjectState", "ObjectNotInActiveTierError"})
_ANOTHER_UPLOAD = frozenset({"InvalidPart", "NoSuchUpload"})


def metadata_of(note: str | None) -> dict[str, Any]:
    """Return the parameters that give a new object its note."""
    return {} if note is None else {"Metadata": {NOTE: note}}


class S3Bucket:
    """The client of `bucket`, for the parts that `objects.S3Objects` is made of."""

    def __init__(self, bucket: str, *, connections: int = 10) -> None:
        self._bucket = bucket
        with border("client of", bucket):
            self._client = _client(connections)

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        return self._bucket

    @property
    def clock(self) -> AwsClock:
        """AWS's clock."""
        return AwsClock(self.ask_time)

    def ask_time(self) -> None:
        """Have S3 say the time, by a HEAD of the bucket. A refusal says it, too. Raises UnavailableError."""
        with border("HEAD of bucket", self._bucket), suppress(ClientError):
            self._client.head_bucket(Bucket=self._bucket)


def _client(connections: int) -> S3Client:
    # Not boto3, whose transfers and resources nobody here needs: they take a tenth of a cold start to load. A session
    # of our own, for threads must not make clients from one at once.
    session = botocore.session.get_session()
    share_models(session)

    def client(addressing_style: Literal["auto", "virtual"]) -> S3Client:
        s3: S3Client = session.create_client(  # type: ignore[assignment]  # the stubs of boto3 know which client it is
            "s3",
            config=Config(
                signature_version="s3v4",
                # We send checksums ourselves: botocore would read every body once more for its own.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                s3={"payload_signing_enabled": False, "addressing_style": addressing_style},
                connect_timeout=CONNECT_TIMEOUT_S,
                read_timeout=READ_TIMEOUT_S,
                retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                max_pool_connections=connections,
            ),
        )
        refuse_broken_answers(s3.meta.events)
        presign_by_heard_time(s3.meta.events)
        sign_deletions_by_claim(s3.meta.events)
        return s3

    auto = client("auto")
    if "amazonaws.com" not in auto.meta.endpoint_url:
        # An endpoint of the user's: it may have no host names for buckets, so addresses are path-style.
        return auto
    # On AWS, "auto" presigns URLs of the global endpoint, which redirects requests for a bucket that is new in another
    # region, and a redirect breaks the signature. "virtual" uses the region's endpoint. The second client costs 5 ms.
    return client("virtual")


def may_pass(err: Exception) -> bool:
    """Tell whether an error that the SDK does not retry is worth another attempt."""
    if isinstance(err, ClientError):
        return error_code(err) == "ConditionalRequestConflict"
    return isinstance(err, HTTPError | FlexibleChecksumError | IncompleteReadError | ResponseStreamingError)


repeat = retrying(may_pass, attempts=MORE_ATTEMPTS, first_delay_s=0.2, max_delay_s=1)


def base64_of(crc32: int) -> str:
    """Write a CRC-32 as S3 does."""
    return b64encode(crc32.to_bytes(4, "big")).decode()


def crc32_of(checksum: str | None) -> int | None:
    """Read a CRC-32 of a whole object; None if S3 has none."""
    # A multipart upload may have a checksum of its parts' checksums, which ends in "-" and their number.
    return None if checksum is None or "-" in checksum else int.from_bytes(b64decode(checksum), "big")


@contextmanager
def border(call: str, key: str, *, is_new: bool = False) -> Iterator[None]:
    """Turn the SDK's errors into ours, those of a call about `key`.

    With `is_new` the call requires that the key has no object.
    """
    try:
        yield
    except ClientError as err:
        if error_code(err) in _NO_OBJECT:
            raise ObjectNotFoundError(key) from err
        if error_code(err) in _ANOTHER_ETAG:
            if is_new:
                raise ObjectExistsError(key) from err
            raise ReplacedError(call, key) from err
        if error_code(err) in _ANOTHER_UPLOAD:
            raise ConflictError(f"{call} {key}: the upload is gone, or a part of it is another") from err
        if error_code(err) in _ARCHIVED:
            # A copy's refusal does not say which class it is.
            details: Mapping[str, Any] = err.response.get("Error", {})
            raise NotRestoredError(key, details.get("StorageClass", "an archived storage class")) from err
        if error_code(err) == "BadDigest":
            raise BadCrcError(key, 0, f"{call}: the bytes that arrived are not of the CRC-32 that was sent") from err
        raise from_aws(err, f"{call} {key}") from err
    except FlexibleChecksumError as err:
        raise BadCrcError(key, 0, f"{call}: the bytes that arrived are not of the checksum that S3 has") from err
    except SDK_ERRORS as err:
        raise from_aws(err, f"{call} {key}") from err
