"""Requests that take turns, because moto answers them in threads and locks nothing.

A transaction in moto copies the table, writes item by item, and restores the copy if a condition fails: acknowledged
writes of others are lost. A PUT with `If-None-Match: *` looks, then writes: two of them may both succeed. So requests
to DynamoDB take turns, and so do requests that write to S3. A request is read completely before its turn: a slow client
holds up nobody.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING, Any

from werkzeug.wrappers import Request, Response

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

Environ = dict[str, Any]


class RequestLock:
    """A WSGI application that passes requests on to moto's, one at a time where that matters."""

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application
        self._dynamodb, self._s3 = Lock(), Lock()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request when its turn comes."""
        turn = self._turn(environ)
        if turn is None:
            return self._application(environ, start_response)
        read_body(environ)
        with turn:
            # Buffered: a lazy response would do its reading after the lock is released.
            response = Response.from_app(self._application, environ, buffered=True)
        return response(environ, start_response)

    def _turn(self, environ: Environ) -> Lock | None:
        """Return the lock that a request has to hold, if any."""
        if environ.get("HTTP_X_AMZ_TARGET", "").startswith("DynamoDB_"):
            return self._dynamodb
        is_s3 = "/s3/aws4_request" in environ.get("HTTP_AUTHORIZATION", "")
        return self._s3 if is_s3 and environ["REQUEST_METHOD"] not in {"GET", "HEAD"} else None


def read_body(environ: Environ) -> bytes:
    """Return the body of a request, and leave it to be read again."""
    body = Request(environ).get_data()
    environ["wsgi.input"] = io.BytesIO(body)
    environ["CONTENT_LENGTH"] = str(len(body))
    # The chunks are joined by now, and whoever believed this header would look for them.
    environ.pop("HTTP_TRANSFER_ENCODING", None)
    return body
