"""DynamoDB's request tokens, which moto ignores: a transaction that is sent twice with one token is written once.

The SDK sends a transaction again if it gets no answer. Without tokens the second attempt fails on its conditions,
because it finds what the first one wrote. As on AWS, a token is valid for ten minutes and for one transaction, and only
a transaction that was written is remembered.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from werkzeug.wrappers import Response

from coldstream.local.request_lock import Environ, read_body

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

HELD_FOR_S = 600.0
_MISMATCH = {
    "__type": "com.amazonaws.dynamodb.v20120810#IdempotentParameterMismatchException",
    "message": "The client request token was used with other items before",
}


@dataclass(frozen=True, slots=True)
class WrittenTransaction:
    """A transaction that was written, and the answer to it."""

    items: Any
    answer: bytes
    forgotten_at_s: float


class TransactionTokens:
    """A WSGI application around moto's. It keeps no lock of its own: `request_lock` serializes its requests."""

    def __init__(self, application: WSGIApplication, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._application = application
        self._clock = clock
        self._written: dict[str, WrittenTransaction] = {}  # the oldest first

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request. A transaction that was written before gets the same answer again."""
        if not environ.get("HTTP_X_AMZ_TARGET", "").endswith(".TransactWriteItems"):
            return self._application(environ, start_response)
        request = json.loads(read_body(environ))
        token = request.get("ClientRequestToken")
        if token is None:
            return self._application(environ, start_response)
        return self._once(token, request.get("TransactItems"), environ)(environ, start_response)

    def _once(self, token: str, items: Any, environ: Environ) -> Response:
        self._forget()
        before = self._written.get(token)
        if before is None:
            response = Response.from_app(self._application, environ, buffered=True)
            if response.status_code == HTTPStatus.OK:
                self._written[token] = WrittenTransaction(items, response.get_data(), self._clock() + HELD_FOR_S)
            return response
        if before.items != items:
            return _answer(HTTPStatus.BAD_REQUEST, json.dumps(_MISMATCH).encode(), token)
        return _answer(HTTPStatus.OK, before.answer, token)

    def _forget(self) -> None:
        now = self._clock()
        for token in [token for token, written in self._written.items() if written.forgotten_at_s <= now]:
            del self._written[token]


def _answer(status: HTTPStatus, body: bytes, token: str) -> Response:
    return Response(body, status, {"x-amzn-RequestId": token}, content_type="application/x-amz-json-1.0")
