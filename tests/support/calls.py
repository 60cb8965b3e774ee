"""What a piece of code asks of AWS, as the permissions that it takes: recorded from the SDK's own calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from tests.support.iam import Request

_OF_AN_OBJECT = {
    "AbortMultipartUpload": "AbortMultipartUpload",
    "CompleteMultipartUpload": "PutObject",
    "CopyObject": "PutObject",
    "CreateMultipartUpload": "PutObject",
    "DeleteObject": "DeleteObject",
    "GetObject": "GetObject",
    "GetObjectLegalHold": "GetObjectLegalHold",
    "HeadObject": "GetObject",
    "ListParts": "ListMultipartUploadParts",
    "PutObject": "PutObject",
    "PutObjectLegalHold": "PutObjectLegalHold",
    "UploadPart": "PutObject",
    "UploadPartCopy": "PutObject",
}
_MAKES_AN_OBJECT = {"CompleteMultipartUpload", "CopyObject", "PutObject"}
_OF_A_BUCKET = {
    "GetBucketLifecycleConfiguration": "GetLifecycleConfiguration",
    "GetBucketVersioning": "GetBucketVersioning",
    "GetObjectLockConfiguration": "GetBucketObjectLockConfiguration",
    "HeadBucket": "ListBucket",
    "ListMultipartUploads": "ListBucketMultipartUploads",
    "ListObjectVersions": "ListBucketVersions",
    "ListObjectsV2": "ListBucket",
}


@contextmanager
def recorded_calls(arns: Mapping[str, str]) -> Iterator[list[Request]]:
    """Record every call of the block as the requests that IAM would see; `arns` are those of bucket, table and bus.

    A call that is not known here is an error.
    """
    requests: list[Request] = []
    original = BaseClient._make_api_call

    def call(client: BaseClient, operation: str, parameters: dict[str, Any]) -> Any:
        requests.extend(_requests(client.meta.service_model.service_name, operation, parameters, arns))
        try:
            return original(client, operation, parameters)
        except ClientError as err:
            if err.response.get("ResponseMetadata", {}).get("HTTPStatusCode") == 404:
                requests.append(Request("s3:ListBucket", arns["bucket"]))  # without it, that would have been a 403
            raise

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseClient, "_make_api_call", call)
        yield requests


def _requests(
    service: str, operation: str, parameters: Mapping[str, Any], arns: Mapping[str, str]
) -> Iterator[Request]:
    if service == "s3":
        yield from _s3(operation, parameters, arns["bucket"])
    elif service == "dynamodb":
        yield from _dynamodb(operation, parameters, arns["table"])
    else:
        assert (service, operation) == ("events", "PutEvents")
        sources = [entry["Source"] for entry in parameters["Entries"]]
        yield Request("events:PutEvents", arns["bus"], {"events:source": sources})


def _s3(operation: str, parameters: Mapping[str, Any], bucket: str) -> Iterator[Request]:
    if operation in _OF_A_BUCKET:
        yield Request(f"s3:{_OF_A_BUCKET[operation]}", bucket)
        return
    tls: dict[str, str | list[str]] = {"aws:SecureTransport": "true"}
    if operation == "DeleteObjects":
        for named in parameters["Delete"]["Objects"]:
            action = "DeleteObjectVersion" if "VersionId" in named else "DeleteObject"
            yield Request(f"s3:{action}", f"{bucket}/{named['Key']}", tls)
        return
    context = dict(tls)
    if _OF_AN_OBJECT[operation] == "PutObject":
        context["s3:ObjectCreationOperation"] = str(operation in _MAKES_AN_OBJECT).lower()
    if "IfNoneMatch" in parameters:
        context["s3:if-none-match"] = parameters["IfNoneMatch"]
    yield Request(f"s3:{_OF_AN_OBJECT[operation]}", f"{bucket}/{parameters['Key']}", context)
    if "CopySource" in parameters:
        yield Request("s3:GetObject", f"{bucket}/{parameters['CopySource']['Key']}", tls)
    if operation == "DeleteObject" and "IfMatch" in parameters:
        yield Request("s3:GetObject", f"{bucket}/{parameters['Key']}", tls)  # a condition on the ETag reads it


def _dynamodb(operation: str, parameters: Mapping[str, Any], table: str) -> Iterator[Request]:
    if operation == "TransactWriteItems":
        for item in parameters["TransactItems"]:
            ((kind, asked_of_one),) = item.items()
            action = "dynamodb:ConditionCheckItem" if kind == "ConditionCheck" else f"dynamodb:{kind}Item"
            leading = asked_of_one.get("Key", asked_of_one.get("Item"))["stream"]["S"]
            yield Request(action, table, {"dynamodb:LeadingKeys": [leading]})
        return
    if operation == "BatchGetItem":
        for asked in parameters["RequestItems"].values():
            leading = [key["stream"]["S"] for key in asked["Keys"]]
            yield Request("dynamodb:BatchGetItem", table, {"dynamodb:LeadingKeys": leading})
        return
    if operation == "TransactGetItems":
        yield from [Request("dynamodb:GetItem", table)] * len(parameters["TransactItems"])
        return
    assert operation in {"DeleteItem", "GetItem", "PutItem", "Query"}, operation
    index = parameters.get("IndexName")
    # Of a Query, the partition is in an expression. No policy asks for it there.
    key = parameters.get("Key", parameters.get("Item"))
    keys: dict[str, str | list[str]] = {} if key is None else {"dynamodb:LeadingKeys": [key["stream"]["S"]]}
    yield Request(f"dynamodb:{operation}", f"{table}/index/{index}" if index else table, keys)
