"""Fast reads: the manifest and the bucket by signed HTTP, for a resolver that must not wait until an SDK is loaded.

AWS's SDK for Python, with PynamoDB on top, takes longer to load than everything else in a resolver's first answer. That
answer needs only one Query and some signatures, which `sigv4` makes.
"""

from __future__ import annotations

import json
import os
import zlib
from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPMessage
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from coldstream.errors import ColdstreamError, UnavailableError
from coldstream.retry import retrying
from coldstream.store.clock import HEARD, AwsClock
from coldstream.store.connections import HttpConnections
from coldstream.store.environment import AwsEnvironment
from coldstream.store.reads import CONNECT_TIMEOUT_S, READ_TIMEOUT_S, RETRIES, DynamoReads, Operation
from coldstream.store.sigv4 import SigV4Signer
from coldstream.units import ByteRange, now_ms

if TYPE_CHECKING:
    from coldstream.store.objects import S3Objects
    from coldstream.store.ports import RangeRead

_API = "DynamoDB_20120810"

_ALWAYS_THERE: Mapping[Operation, str] = {
    "BatchGetItem": "Responses",
    "Query": "Items",
    "TransactGetItems": "Responses",
}


class FastTable(DynamoReads):
    """Implement `ports.ManifestReads` on the table `name`.

    Nothing is sent before the first call. Threads may share it. Connections are kept between calls.
    """

    def __init__(self, name: str, aws: AwsEnvironment) -> None:
        super().__init__(name)
        self._aws = aws
        self._url = urlsplit(aws.dynamodb_url)
        self._signer = SigV4Signer(aws, "dynamodb")
        self._connections = HttpConnections(
            self._url.scheme,
            self._url.hostname or "",
            self._url.port,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            read_timeout_s=READ_TIMEOUT_S,
        )

    def _call(self, operation: Operation, parameters: Mapping[str, Any], what: str) -> Mapping[str, Any]:
        body = json.dumps(parameters).encode()
        repeat = retrying(_is_retryable, attempts=1 + RETRIES, first_delay_s=1, max_delay_s=2**RETRIES)
        return repeat(self._send, operation, body, what)

    def _send(self, operation: Operation, body: bytes, what: str) -> Mapping[str, Any]:
        headers = {
            "Host": self._url.netloc,
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": f"{_API}.{operation}",
        }
        headers = self._signer.headers("POST", "/", {}, headers, body=body, at=now_ms()) | _trace()
        with self._connection(what) as connection:
            connection.request("POST", "/", body, headers)
            answer = connection.getresponse()
            status, content = answer.status, answer.read()
            # Inside the block: a connection with a broken answer is closed, and never lent again.
            found = _read_answer(status, answer.headers, content)
        if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            HEARD.hear(answer.headers["Date"])
        if status != HTTPStatus.OK:
            raise _refusal(status, found, operation, what)
        always = _ALWAYS_THERE.get(operation)
        if always is not None and always not in found:
            raise UnavailableError(f"{what}: an answer without {always}")
        return found

    @contextmanager
    def _connection(self, what: str) -> Iterator[HTTPConnection]:
        """Lend a connection, and keep it after a success. Raises UnavailableError if the connection fails."""
        try:
            with self._connections.lend() as connection:
                yield connection
        except (OSError, HTTPException) as err:
            raise UnavailableError(f"{what}: {type(err).__name__}: {err}") from err


class FastObjects:
    """Implement `ports.ObjectReads` on `bucket`, which is at `url`. Only presigned URLs do without the SDK."""

    def __init__(self, bucket: str, url: str, aws: AwsEnvironment) -> None:
        self._bucket = bucket
        self._url = urlsplit(url)
        self._signer = SigV4Signer(aws, "s3")

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        return self._bucket

    def get_range(self, key: str, byte_range: ByteRange, *, if_match: str | None = None) -> RangeRead:
        """Read a range; the first call loads the SDK."""
        return self._by_sdk.get_range(key, byte_range, if_match=if_match)

    def presign_get(self, key: str, byte_range: ByteRange, *, expires_s: int) -> str:
        """Sign a URL for a range: its `Range` header is among the signed ones."""
        path = f"{self._url.path}/{quote(key)}"
        headers = {"Host": self._url.netloc, "Range": byte_range.http}
        query = self._signer.presigned_query("GET", path, {}, headers, expires_s=expires_s, at=self.clock())
        return f"{self._url.scheme}://{self._url.netloc}{path}?{query}"

    @property
    def clock(self) -> AwsClock:
        """AWS's clock."""
        return AwsClock(self.ask_time)

    def ask_time(self) -> None:
        """Have S3 say the time, by a HEAD; loads the SDK. A resolver reads the table first, and has heard by then."""
        self._by_sdk.ask_time()

    @cached_property
    def _by_sdk(self) -> S3Objects:
        from coldstream.store.objects import S3Objects  # noqa: PLC0415  # loads the SDK

        return S3Objects(self._bucket)


def _is_retryable(err: Exception) -> bool:
    return isinstance(err, UnavailableError) and err.retryable


def _trace() -> dict[str, str]:
    """Return the header by which AWS traces a request, and detects a loop of functions, as the SDK does."""
    # Read for each request: Lambda sets it anew for each invocation.
    trace = os.environ.get("_X_AMZN_TRACE_ID")
    return {"X-Amzn-Trace-Id": quote(trace, safe="-=;:+&[]{}\"',")} if trace else {}


def _read_answer(status: int, headers: HTTPMessage, content: bytes) -> dict[str, Any]:
    """Read an answer. Raises HTTPException unless it is a whole answer of AWS's, by the rules of `answers`."""
    is_failure = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    if not is_failure and headers["x-amzn-requestid"] is None:
        raise HTTPException(f"status {status} without a request id: not from AWS")
    if (checksum := headers["x-amz-crc32"]) is not None and checksum != str(zlib.crc32(content)):
        raise HTTPException("a body of another CRC-32 than announced")
    try:
        found = json.loads(content, object_hook=_with_bytes)
    except (ValueError, TypeError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    if is_failure:
        return {}
    raise HTTPException("a body that is no JSON object")


def _refusal(status: int, answered: Mapping[str, Any], operation: Operation, what: str) -> ColdstreamError:
    """Return the error for an answer that refuses the call."""
    # These load a part of the SDK, so import them only after a refusal.
    from botocore.exceptions import ClientError  # noqa: PLC0415

    from coldstream.store.awserrors import from_aws  # noqa: PLC0415

    # DynamoDB puts a namespace before the code, and spells `message` with a capital in some refusals.
    code = str(answered.get("__type", status)).rpartition("#")[2]
    message = answered.get("message", answered.get("Message", ""))
    answer: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return from_aws(ClientError(answer, operation), what)


def _with_bytes(value: dict[str, Any]) -> dict[str, Any]:
    """Decode binary content: `{"B": base64}`."""
    return {"B": b64decode(value["B"])} if value.keys() == {"B"} else value
