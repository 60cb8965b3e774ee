"""Refuse answers that are not whole, or not from AWS.

The SDK does not compare a body with its Content-Length, takes unreadable JSON for an object without fields, and does
not check who answered. So a cut answer to a GetItem would mean that there is no item, and a proxy's page that a PUT was
done.

An answer that is AWS's also says what time it is: `clock` hears it here, and `calls` that it came. And when all
attempts of a call have failed, the SDK raises the error of the last one, which may not even have been sent. Whether an
earlier one may have passed is noted here.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any
from zlib import crc32

from botocore.awsrequest import AWSResponse
from botocore.hooks import BaseEventHooks
from botocore.model import OperationModel

from coldstream.store.awserrors import EARLIER_MAY_HAVE_PASSED, NEVER_SENT
from coldstream.store.calls import CALLS
from coldstream.store.clock import HEARD

BROKEN_ANSWER = "BrokenAnswer"
"""The error code that replaces a refused answer. Its status is 500, so that the SDK repeats the call."""

_REQUEST_IDS = ("x-amzn-requestid", "x-amz-request-id")
_REQUEST_ID_IN_BODY = b"<RequestId>"

_ALWAYS_THERE = {
    "BatchGetItem": "Responses",
    "CompleteMultipartUpload": "ETag",
    "CopyObject": "CopyObjectResult",
    "CreateMultipartUpload": "UploadId",
    "DescribeContinuousBackups": "ContinuousBackupsDescription",
    "DescribeTable": "Table",
    "GetObject": "ETag",
    "HeadObject": "ETag",
    "ListMultipartUploads": "IsTruncated",
    "ListObjectVersions": "IsTruncated",
    "ListObjectsV2": "IsTruncated",
    "ListParts": "IsTruncated",
    "PutEvents": "FailedEntryCount",
    "PutObject": "ETag",
    "Query": "Items",
    "TransactGetItems": "Responses",
    "UploadPart": "ETag",
}
"""A field of every successful answer to an operation. Without it, a well-formed body is still no answer."""


def refuse_broken_answers(events: BaseEventHooks) -> None:
    """Make clients repeat a call whose answer is broken, and in the end fail it as if its status were 500.

    The hooks are those of a client, or of a session for the clients that it makes later. A second call for the same
    hooks does nothing. Streamed bodies (GetObject) are for their reader to check, who alone sees their end.
    """
    for event, handler in (("before-parse", _before_parse), ("needs-retry", _before_retry)):
        events.register_first(f"{event}.*.*", handler, unique_id=f"coldstream-{event}")
    CALLS.watch(events)


def _before_parse(
    operation_model: OperationModel,
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, Any],
    **_: object,
) -> None:
    problem = _problem(operation_model, response_dict["status_code"], response_dict["headers"], response_dict["body"])
    if problem is None:
        if response_dict["status_code"] < HTTPStatus.INTERNAL_SERVER_ERROR:
            HEARD.hear(response_dict["headers"].get("date"))
        return
    # Nobody will read this stream: left open, it would keep its connection out of the pool.
    if not isinstance(response_dict["body"], bytes):
        response_dict["body"].close()
    response_dict.update(status_code=int(HTTPStatus.INTERNAL_SERVER_ERROR), body=b"")
    customized_response_dict["Error"] = {"Code": BROKEN_ANSWER, "Message": problem}


def _problem(operation: OperationModel, status: int, headers: Any, body: Any) -> str | None:
    """Return what is wrong with an answer, if anything; `body` is a stream if the operation streams and succeeded."""
    is_whole = isinstance(body, bytes)
    if status < HTTPStatus.INTERNAL_SERVER_ERROR and not (
        any(name in headers for name in _REQUEST_IDS) or (is_whole and _REQUEST_ID_IN_BODY in body)
    ):
        return f"status {status} without a request id: not from AWS"
    if not is_whole or operation.http.get("method") == "HEAD":
        return None
    length = headers.get("content-length")
    if length is not None and length != str(len(body)):
        return f"a body of {len(body)} bytes instead of the {length} announced"
    if operation.service_model.resolved_protocol != "json":
        return None
    checksum = headers.get("x-amz-crc32")
    if checksum is not None:
        return None if checksum == str(crc32(body)) else "a body of another CRC-32 than announced"
    return None if _is_object(body) else "a body that is no JSON object"


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except (ValueError, RecursionError):
        return False


def _before_retry(
    operation: OperationModel,
    request_dict: dict[str, Any],
    response: tuple[AWSResponse, dict[str, Any]] | None = None,
    caught_exception: Exception | None = None,
    **_: object,
) -> None:
    """Set the status of a refused answer for the retry handler, which runs next, and note what may have passed."""
    context = request_dict["context"]  # one for all attempts of a call
    if response is None:
        if not isinstance(caught_exception, NEVER_SENT):
            context[EARLIER_MAY_HAVE_PASSED] = True
        else:
            vars(caught_exception)[EARLIER_MAY_HAVE_PASSED] = EARLIER_MAY_HAVE_PASSED in context
        return
    http, parsed = response
    metadata = parsed["ResponseMetadata"]
    metadata[EARLIER_MAY_HAVE_PASSED] = EARLIER_MAY_HAVE_PASSED in context
    field = _ALWAYS_THERE.get(operation.name)
    is_success = metadata["HTTPStatusCode"] < HTTPStatus.MULTIPLE_CHOICES
    if is_success and field is not None and parsed.get(field, {}) == {}:
        http.raw.close()
        metadata["HTTPStatusCode"] = int(HTTPStatus.INTERNAL_SERVER_ERROR)
        parsed["Error"] = {"Code": BROKEN_ANSWER, "Message": f"an answer without {field}"}
    # botocore's retry handler looks at the HTTP response, not at what was parsed from it.
    http.status_code = metadata["HTTPStatusCode"]
    if http.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
        context[EARLIER_MAY_HAVE_PASSED] = True
