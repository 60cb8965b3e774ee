"""A proxy before an emulated AWS that does one thing to a request, as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from tests.support.faults import FaultyAws
from tests.support.http_relay import Head, discard_body, read_head, relay_body


class Fate(Enum):
    """What becomes of a request, and of its answer."""

    REFUSED_500 = (500, "Internal Server Error", "InternalError")
    REFUSED_503 = (503, "Service Unavailable", "SlowDown")
    REFUSED_409 = (409, "Conflict", "ConditionalRequestConflict")
    NOT_FOUND = (404, "Not Found", "NoSuchKey")
    STALLED_BEFORE = "it is not carried out, and nobody answers"
    STALLED_AFTER = "it is carried out, and nobody answers"
    RESET_BEFORE = "the connection breaks in the middle of the request"
    RESET_AFTER = "it is carried out, and the connection breaks before the answer"
    CUT = "it is carried out, and the connection breaks in the middle of the answer"


class ScriptedAws(FaultyAws):
    """The proxy. `fate_of` is asked about each request, by its method and path; None has it pass."""

    def __init__(self, upstream_url: str, fate_of: Callable[[str, str], Fate | None]) -> None:
        super().__init__(upstream_url, seed=0)
        self.fate_of = fate_of

    async def _answer(
        self,
        request: Head,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream_reader: asyncio.StreamReader,
        upstream_writer: asyncio.StreamWriter,
    ) -> bool:
        fate = self.fate_of(request.method, request.line.split()[1])
        self.counts["passed" if fate is None else fate.name] += 1
        if request.expects_continue:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if fate is not None and isinstance(fate.value, tuple):
            await discard_body(request, reader)
            writer.write(_refusal(request, *fate.value))
            await writer.drain()
            return True
        if fate is Fate.STALLED_BEFORE:
            await discard_body(request, reader)
            await reader.read()  # until the client gives up
            return False
        upstream_writer.write(request.to_bytes())
        is_whole = await relay_body(request, reader, upstream_writer, cut_half_way=fate is Fate.RESET_BEFORE)
        answer = await read_head(upstream_reader) if is_whole else None
        if fate is Fate.STALLED_AFTER:
            await reader.read()
        if answer is None or fate in {Fate.STALLED_AFTER, Fate.RESET_AFTER}:
            return False
        answer = answer.answering(request)
        writer.write(answer.to_bytes())
        is_whole = await relay_body(answer, upstream_reader, writer, cut_half_way=fate is Fate.CUT)
        return is_whole and answer.keeps_alive


def _refusal(request: Head, status: int, reason: str, code: str) -> bytes:
    body = "" if request.method == "HEAD" else f"<Error><Code>{code}</Code><Message>as a test says</Message></Error>"
    head = f"HTTP/1.1 {status} {reason}\r\nx-amz-request-id: of-a-test\r\nContent-Type: application/xml"
    return f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
