"""Stand between the SDK and the network: see what is sent, and give the answers that an emulator never gives."""

from __future__ import annotations

import io
import json
from typing import Any, Self

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from urllib3 import HTTPResponse


class Wire:
    """What a client sends while in the context, and what it gets: the next of a script, else what the server says."""

    def __init__(self, client: Any, *script: AWSResponse | Exception) -> None:
        self.sent: list[AWSPreparedRequest] = []
        self._script = list(script)
        self._events = client.meta.events

    def __enter__(self) -> Self:
        self._events.register("before-send", self._before_send)
        return self

    def __exit__(self, *_: object) -> None:
        self._events.unregister("before-send", self._before_send)

    def _before_send(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse | None:
        self.sent.append(request)
        if not self._script:
            return None
        answer = self._script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def calls(self) -> list[str]:
        """Names of the DynamoDB operations that were sent."""
        return [request.headers["X-Amz-Target"].decode().partition(".")[2] for request in self.sent]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """Arguments of the DynamoDB operations that were sent."""
        return [json.loads(request.body) for request in self.sent]


def answer(status: int, body: bytes = b"", **headers: str) -> AWSResponse:
    """An answer of AWS's whose body ends where `body` does, whatever its headers say."""
    return foreign_answer(status, body, x_amzn_RequestId="of-a-test", **headers)


def foreign_answer(status: int, body: bytes = b"", **headers: str) -> AWSResponse:
    """An answer of somebody between us and AWS."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = HTTPResponse(  # as the SDK makes it
        io.BytesIO(body), headers=named, status=status, preload_content=False, enforce_content_length=False
    )
    return AWSResponse("http://aws.test/", status, raw.headers, raw)


def dynamodb_answer(content: dict[str, Any]) -> AWSResponse:
    return answer(200, json.dumps(content).encode())


def dynamodb_error(code: str, *reasons: str, status: int = 400) -> AWSResponse:
    """An error, as DynamoDB words it; `reasons` are those of a transaction's items."""
    content: dict[str, Any] = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "as told"}
    if reasons:
        content["CancellationReasons"] = [{"Code": reason} for reason in reasons]
    return answer(status, json.dumps(content).encode())


def s3_error(status: int, code: str) -> AWSResponse:
    return answer(status, f"<Error><Code>{code}</Code><Message>as told</Message></Error>".encode())
