"""Refuse what is no whole answer of AWS's.

The SDK compares no body with its Content-Length, takes JSON that it cannot read for an object without fields, and asks
nobody who answered. A cut answer to a GetItem would say that there is no item; a proxy's page, that a PUT was done.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any
from zlib import crc32

from botocore.awsrequest import AWSResponse
from botocore.hooks import BaseEventHooks
from botocore.model import OperationModel

BROKEN_ANSWER = "BrokenAnswer"
"""The code of the error in the place of a refused answer; its status is 500, and so the SDK repeats the call."""

_REQUEST_IDS = ("x-amzn-requestid", "x-amz-request-id")
_REQUEST_ID_IN_BODY = b"<RequestId>"

_ALWAYS_THERE = {
    "CompleteMultipartUpload": "ETag",
    "CopyObject": "CopyObjectResult",
    "CreateMultipartUpload": "UploadId",
    "GetObject": "ETag",
    "HeadObject": "ETag",
    "ListMultipartUploads": "IsTruncated",
    "ListParts": "IsTruncated",
    "PutEvents": "FailedEntryCount",
    "PutObject": "ETag",
    "Query": "Items",
    "TransactGetItems": "Responses",
    "UploadPart": "ETag",
}
"""What every success of an operation has. Without it, something well-formed was said, but no answer."""


def refuse_broken_answers(events: BaseEventHooks) -> None:
    """Make the clients of these hooks repeat a call whose answer is broken, and fail it in the end as of status 500.

    The hooks are a client's, or a session's for the clients that it makes from now on. Again for the same does nothing.
    Bodies that are streamed (GetObject) are their reader's to check, who alone sees their end.
    """
    for event, handler in (("before-parse", _before_parse), ("needs-retry", _before_retry)):
        events.register_first(f"{event}.*.*", handler, unique_id=f"coldstream-{event}")


def _before_parse(
    operation_model: OperationModel,
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, Any],
    **_: object,
) -> None:
    problem = _problem(operation_model, response_dict["status_code"], response_dict["headers"], response_dict["body"])
    if problem is None:
        return
    if not isinstance(response_dict["body"], bytes):
        response_dict["body"].close()
    response_dict.update(status_code=int(HTTPStatus.INTERNAL_SERVER_ERROR), body=b"")
    customized_response_dict["Error"] = {"Code": BROKEN_ANSWER, "Message": problem}


def _problem(operation: OperationModel, status: int, headers: Any, body: Any) -> str | None:
    """Say what is wrong with an answer; `body` is a stream where the operation has one and did not fail."""
    is_whole = isinstance(body, bytes)
    if status < HTTPStatus.INTERNAL_SERVER_ERROR and not (
        any(name in headers for name in _REQUEST_IDS) or (is_whole and _REQUEST_ID_IN_BODY in body)
    ):
        return f"status {status} without a request id: not from AWS"
    if not is_whole or operation.http.get("method") == "HEAD":
        return None
    length = headers.get("content-length")
    if length is not None and length != str(len(body)):
        return f"a body of {len(body)} bytes, where {length} were announced"
    if operation.service_model.resolved_protocol != "json":
        return None
    checksum = headers.get("x-amz-crc32")
    if checksum is not None:
        return None if checksum == str(crc32(body)) else "a body of another CRC-32 than announced"
    return None if _is_object(body) else "a body that is no JSON object"


def _is_object(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict)
    except ValueError:
        return False


def _before_retry(
    operation: OperationModel, response: tuple[AWSResponse, dict[str, Any]] | None = None, **_: object
) -> None:
    """Give the retry handler, which comes next, the status of what was refused."""
    if response is None:
        return
    http, parsed = response
    metadata = parsed["ResponseMetadata"]
    wanted = _ALWAYS_THERE.get(operation.name)
    is_success = metadata["HTTPStatusCode"] < HTTPStatus.MULTIPLE_CHOICES
    if is_success and wanted is not None and parsed.get(wanted, {}) == {}:
        http.raw.close()
        metadata["HTTPStatusCode"] = int(HTTPStatus.INTERNAL_SERVER_ERROR)
        parsed["Error"] = {"Code": BROKEN_ANSWER, "Message": f"an answer without {wanted}"}
    http.status_code = metadata["HTTPStatusCode"]
