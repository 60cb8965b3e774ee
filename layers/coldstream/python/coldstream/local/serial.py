"""One request at a time, where moto answers requests in threads and locks nothing.

A transaction of moto's copies the table, writes item by item, and puts the copy back if a condition fails: whatever
others wrote meanwhile is gone, though it was acknowledged. A PUT on the condition that nothing is there looks, and then
writes: two that look at the same moment both succeed. So requests to DynamoDB take turns, and so do those that change
something in S3. Each is read whole before its turn, so that a slow client holds up nobody.
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


class OneAtATime:
    """A WSGI application around moto's."""

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application
        self._dynamodb, self._s3 = Lock(), Lock()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request once it is its turn."""
        turn = self._turn(environ)
        if turn is None:
            return self._application(environ, start_response)
        read_body(environ)
        with turn:
            response = Response.from_app(self._application, environ, buffered=True)
        return response(environ, start_response)

    def _turn(self, environ: Environ) -> Lock | None:
        """Return what a request has to wait for."""
        if environ.get("HTTP_X_AMZ_TARGET", "").startswith("DynamoDB_"):
            return self._dynamodb
        is_s3 = "/s3/aws4_request" in environ.get("HTTP_AUTHORIZATION", "")
        return self._s3 if is_s3 and environ["REQUEST_METHOD"] not in {"GET", "HEAD"} else None


def read_body(environ: Environ) -> bytes:
    """Return the body of a request, which can be read again after that."""
    body = Request(environ).get_data()
    environ["wsgi.input"] = io.BytesIO(body)
    environ["CONTENT_LENGTH"] = str(len(body))
    environ.pop("HTTP_TRANSFER_ENCODING", None)
    return body
