"""A stream broker and its agent behind HTTP, for the conformance suite: what the suite writes is archived, and served.

PUT declares a stream, whose first chunk has tracking alone, as a consumer's offset leaves it; POST publishes a batch.
Each is a segment that a broker has rolled, staged and uploaded as an agent and the upload function do. Everything else
goes to the server that is tested, which finds archived streams of a broker.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from coldstream.archive.upload import Uploader
from coldstream.errors import InvalidInputError
from coldstream.format.tracking import TrackingRecord, TrackingType
from coldstream.format.writer import SegmentWriter
from coldstream.ingest.stage import find_rolled, stage
from coldstream.manifest.stream import StreamId, new_stream
from coldstream.serve.options import ArchivedType
from coldstream.serve.protocol.content_type import BYTES, ContentType
from coldstream.serve.protocol.json_messages import split_messages
from coldstream.serve.protocol.offset_token import to_token
from coldstream.serve.protocol.stream_name import name_of_path
from coldstream.serve.stream_host import StreamHost
from coldstream.streams import DirectArchive
from coldstream.units import MIB, Epoch, Offset, TimestampMs, now_ms

_UNKNOWN = ("Stream-TTL", "Stream-Expires-At", "Stream-Closed", "Stream-Forked-From", "Stream-Seq", "Producer-Id")
_VBIN32_DATA = b"\x00\x53\x75\xb0"


@dataclass
class _Declared:
    stream: StreamId
    content_type: ContentType
    writer: SegmentWriter
    directory: Path


class BrokerFront:
    """The application. `directory` is the broker's."""

    def __init__(self, app: ASGIApp, host: StreamHost, archive: DirectArchive, directory: Path) -> None:
        self._app = app
        self._host = host
        self._archive = archive
        self._uploader = Uploader(archive.table, archive.objects, archive.keys, 64 * MIB)
        self._directory = directory
        self._declared: dict[str, _Declared] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp = self._app
        if scope["type"] == "http" and scope["method"] in {"PUT", "POST"}:
            request = Request(scope, receive)
            app = await self._written(request, await request.body())
        await app(scope, receive, send)

    def close(self) -> None:
        for declared in self._declared.values():
            declared.writer.close()

    async def _written(self, request: Request, body: bytes) -> Response:
        name = name_of_path(request.scope["raw_path"].decode())
        assert name is not None
        if any(header in request.headers for header in _UNKNOWN):
            return Response(status_code=501)
        declared = self._declared.get(name)
        is_new = declared is None
        if declared is None:
            if request.method == "POST":
                return Response(status_code=404)
            declared = self._declare(name, request.headers)
        with suppress(InvalidInputError):
            messages = split_messages(body) if declared.content_type.is_json and body else [body] if body else []
            if messages and (is_new or request.method == "POST"):
                self._publish(declared, messages)
            elif request.method == "POST":
                return Response(status_code=400)
            headers = {"Stream-Next-Offset": to_token(declared.writer.next_offset), "Location": str(request.url)}
            headers["Content-Type"] = declared.content_type.text
            if request.method == "POST":
                return Response(status_code=204, headers=headers)
            return Response(status_code=201 if is_new else 200, headers=headers)
        return Response(status_code=400)

    def _declare(self, name: str, headers: Headers) -> _Declared:
        content_type = ContentType.parse(headers.get("content-type", BYTES.text))
        types = (ArchivedType(name, content_type), *self._host.options.archived_types)
        self._host.options = replace(self._host.options, archived_types=types)
        stream = new_stream("/", name, time.time_ns())
        directory = self._directory / str(len(self._declared))
        directory.mkdir()
        declared = self._declared[name] = _Declared(stream, content_type, SegmentWriter(directory), directory)
        declared.writer.write(
            timestamp=now_ms(), tracking=[TrackingRecord(TrackingType.OFFSET, b"consumer", Offset(0))]
        )
        self._roll(declared)
        return declared

    def _publish(self, declared: _Declared, messages: list[bytes]) -> None:
        entries = [_VBIN32_DATA + len(message).to_bytes(4) + message for message in messages]
        declared.writer.write(entries, timestamp=TimestampMs(now_ms()), epoch=Epoch(1))
        self._roll(declared)

    def _roll(self, declared: _Declared) -> None:
        """End the segment, begin the next one, and archive what is complete."""
        declared.writer.close()
        declared.writer = SegmentWriter(declared.directory, first_offset=declared.writer.next_offset)
        rolled = find_rolled(declared.directory)[-1]
        self._uploader.upload(stage(rolled, declared.stream, self._archive.objects, self._archive.keys))
