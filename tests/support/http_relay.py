"""HTTP/1.1 messages passed on as they come: heads are read, bodies are streamed (RFC 9112, sections 2 and 6)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

PIECE_BYTES = 64 * 1024
MAX_HEAD_BYTES = 64 * 1024
WITHOUT_BODY = {204, 304}


class RelayError(Exception):
    """A message is not HTTP, or ended half-way."""


@dataclass(frozen=True, slots=True)
class Head:
    """The first line of a message, and its fields by names in lower case. `method` is always the request's."""

    line: str
    lines: tuple[str, ...]
    fields: dict[str, str]
    method: str

    @property
    def is_response(self) -> bool:
        """Whether this is a response."""
        return self.line.startswith("HTTP/")

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits to be told to send the body."""
        return self.fields.get("expect", "").lower() == "100-continue"

    @property
    def is_chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return self.fields.get("transfer-encoding", "").lower() == "chunked"

    @property
    def body_bytes(self) -> int | None:
        """The length of the body; None if only the end of the connection ends it."""
        if self.is_response and (self.method == "HEAD" or int(self.line.split()[1]) in WITHOUT_BODY):
            return 0
        length = self.fields.get("content-length")
        return int(length) if length is not None else (None if self.is_response else 0)

    @property
    def keeps_alive(self) -> bool:
        """Whether the connection goes on after this response."""
        is_open = self.line.startswith("HTTP/1.1") and self.fields.get("connection", "").lower() != "close"
        return is_open and (self.is_chunked or self.body_bytes is not None)

    def answering(self, request: Head) -> Head:
        """Return this response as the answer to a request: whether it has a body depends on the method."""
        return replace(self, method=request.method)

    def to_bytes(self) -> bytes:
        """Encode the head, without the field `Expect`."""
        lines = [line for line in self.lines if not line.lower().startswith("expect:")]
        return "\r\n".join([self.line, *lines, "", ""]).encode("latin-1")


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """Read a head; return None if the connection has ended."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as err:
        if err.partial:
            raise RelayError("the connection ended within a head") from err
        return None
    except asyncio.LimitOverrunError as err:
        raise RelayError("a head without end") from err
    line, *lines = raw.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    pairs = (field.partition(":") for field in lines)
    fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return Head(line, tuple(lines), fields, line.split()[0])


async def relay_body(
    head: Head, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, cut_half_way: bool = False
) -> bool:
    """Pass a body on as it comes and return True; or only half of it, and return False."""
    if head.is_chunked and (head.method != "HEAD" or not head.is_response):
        await _relay_chunks(reader, writer)
        return not cut_half_way
    left = head.body_bytes
    if cut_half_way:
        left = (left or 0) // 2
    while left is None or left > 0:
        piece = await reader.read(PIECE_BYTES if left is None else min(left, PIECE_BYTES))
        if not piece:
            if left is None:
                break
            raise RelayError("the connection ended within a body")
        left = None if left is None else left - len(piece)
        writer.write(piece)
        await writer.drain()
    await writer.drain()
    return not cut_half_way


async def discard_body(head: Head, reader: asyncio.StreamReader) -> None:
    """Read a request's body and drop it."""
    await relay_body(head, reader, _Nowhere())  # type: ignore[arg-type]  # it writes and drains, and that is all


async def _relay_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        writer.write(line)
        if size == 0:
            break
        left = size + 2
        while left:
            piece = await reader.read(min(left, PIECE_BYTES))
            if not piece:
                raise RelayError("the connection ended within a chunk")
            left -= len(piece)
            writer.write(piece)
            await writer.drain()
    while line != b"\r\n":  # fields after the last chunk, and the empty line
        line = await reader.readuntil(b"\r\n")
        writer.write(line)
    await writer.drain()


class _Nowhere:
    """A writer that drops what it is given."""

    def write(self, data: bytes) -> None:
        """Drop the data."""

    async def drain(self) -> None:
        """Wait for nothing."""
