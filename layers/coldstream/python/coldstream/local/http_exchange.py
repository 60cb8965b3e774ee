"""An HTTP request and its response, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request. `target` is path and query string as they were sent."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    source_ip: str


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response. Headers may repeat."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


FAILED = Response(500, (("content-type", "application/json"),), b'{"message":"Internal Server Error"}')
"""API Gateway's answer if a function fails, or returns no valid response."""

TOO_LARGE = Response(413, (("content-type", "application/json"),), b'{"message":"Request Entity Too Large"}')
