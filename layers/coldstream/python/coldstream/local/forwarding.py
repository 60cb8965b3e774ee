"""Requests of one HTTP API to the functions that its routes name: each is served at an address of its own.

A route is ANY of `/prefix/{proxy+}`: every path below the prefix, the prefix itself not included.
"""

from __future__ import annotations

import http.client
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from coldstream.local.http_exchange import FAILED, Request, Response

TIMEOUT_S = 35.0
"""API Gateway gives a function 30 seconds."""

_OF_A_CONNECTION = {"connection", "content-length", "keep-alive", "transfer-encoding", "host"}


@dataclass(frozen=True, slots=True)
class Forwards:
    """Addresses by the prefixes of their routes, such as `/v1`."""

    urls: Mapping[str, str]

    def url_of(self, target: str) -> str | None:
        """Return the address for a request's target, None if no route has it."""
        path = target.partition("?")[0]
        return next(
            (url for prefix, url in self.urls.items() if len(path) > len(prefix) + 1 and path.startswith(f"{prefix}/")),
            None,
        )

    def send(self, url: str, request: Request) -> Response:
        """Send a request there, and return the answer; FAILED if none comes, as while a function starts again."""
        address = urlsplit(url)
        connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=TIMEOUT_S)
        try:
            connection.putrequest(request.method, request.target, skip_accept_encoding=True)
            for name, value in request.headers:
                # The host is kept by `putrequest`; lengths and connections are this exchange's own.
                if name.lower() not in _OF_A_CONNECTION:
                    connection.putheader(name, value)
            connection.putheader("content-length", str(len(request.body)))
            connection.endheaders(request.body or None)
            answer = connection.getresponse()
            headers = tuple(
                pair for pair in answer.getheaders() if pair[0].lower() not in _OF_A_CONNECTION | {"server", "date"}
            )
            return Response(answer.status, headers, answer.read())
        except (OSError, ValueError, http.client.HTTPException):
            traceback.print_exc()
            return FAILED
        finally:
            connection.close()
