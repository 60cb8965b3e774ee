"""A small, fast S3 for measurements: moto is too slow for them, and AWS too far away.

    python -m bench.s3_server --latency-ms 10 --connection-mib-s 90

It serves, path-style and on the loopback: PUT (with `If-None-Match: *`, whole or aws-chunked with a trailer), COPY, GET
with a range, HEAD, DELETE, DeleteObjects and ListObjectsV2, and multipart uploads whose parts are sent or copied. It
checks CRC-32s as S3 does, and ignores signatures. It can delay answers, each by a time that `--jitter-ms` spreads
evenly, and limit the rate of each connection in both directions, as S3 does: one connection to S3 carries about 90
MiB/s.

It counts what it serves: GET /-/stats returns the counts as JSON, DELETE /-/stats resets them.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import socket
import socketserver
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from email.utils import formatdate
from io import BufferedReader
from urllib.parse import parse_qsl, unquote

from bench.s3_bodies import BLOCK_BYTES, Arena, Body
from bench.s3_listings import describe_deleted, keys_to_delete, list_objects
from bench.s3_store import RefusedError, Store, StoredObject
from bench.s3_uploads import InvalidPartError, NoSuchUploadError, base64_of

STATS_PATH = "/-/stats"
OTHER_SUMS = ("crc32c", "crc64nvme", "sha1", "sha256")
REASONS = {200: "OK", 204: "No Content", 206: "Partial Content", 412: "Precondition Failed"}


REQUEST_ID = "x-amz-request-id: 0000000000000000"
"""Clients take a server that sends none for something else than AWS."""

Pace = Callable[[int], None]
"""Called with the bytes of a body that have passed so far, it waits until that many are due."""


class Server(socketserver.ThreadingTCPServer):
    """Listens on the loopback, with a thread for each connection.

    Threads are enough: sockets, CRCs and copies release the interpreter's lock.
    """

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, store: Store, latency_ms: float, jitter_ms: float, connection_mib_s: float) -> None:
        super().__init__(("127.0.0.1", port), Connection)
        self.store = store
        self.latency_s = latency_ms / 1000
        self.jitter_s = jitter_ms / 1000
        self.connection_bytes_s = connection_mib_s * (1 << 20)


class Connection(socketserver.StreamRequestHandler):
    """Serves the requests of one connection in turn."""

    server: Server
    connection: socket.socket
    rfile: BufferedReader
    rbufsize = 1 << 16
    disable_nagle_algorithm = True

    def handle(self) -> None:
        """Serve until the client closes the connection."""
        self.buffer = bytearray(BLOCK_BYTES)
        with suppress(ConnectionError):
            while self._serve_one():
                pass

    def _serve_one(self) -> bool:
        line = self.rfile.readline(1 << 16).decode("latin-1").split()
        if len(line) != 3:
            return False
        self.method, target, _ = line
        self.headers = dict(self._header_lines())
        path, _, query = target.partition("?")
        self.path = unquote(path)
        self.parameters = dict(parse_qsl(query, keep_blank_values=True))
        try:
            self._dispatch()
        except RefusedError as refused:
            self.server.store.count(f"{self.method} {refused.status}")
            body = b"" if self.method == "HEAD" else f"<Error><Code>{refused.code}</Code></Error>".encode()
            self._answer(refused.status, {"Content-Type": "application/xml"}, body)
            return not refused.closes
        return self.headers.get("connection", "").lower() != "close"

    def _header_lines(self) -> Iterator[tuple[str, str]]:
        while line := self.rfile.readline(1 << 16).decode("latin-1").rstrip("\r\n"):
            name, _, value = line.partition(":")
            yield name.lower(), value.strip()

    def _dispatch(self) -> None:
        store = self.server.store
        if self.path == STATS_PATH:
            if self.method == "DELETE":
                store.counts.clear()
            self._answer(200, {"Content-Type": "application/json"}, json.dumps(store.counts).encode())
            return
        kind = self._kind()
        serve: dict[str, Callable[[], None]] = {
            "POST upload": self._post_upload,
            "PUT part": self._put_part,
            "COPY part": self._copy_part,
            "GET upload": self._list_upload,
            "DELETE upload": self._abort_upload,
            "PUT": self._put,
            "COPY": self._copy,
            "GET": self._get,
            "HEAD": self._head,
            "DELETE": self._delete,
            "LIST": self._list,
            "DELETE many": self._delete_many,
        }
        if kind not in serve or "versionId" in self.parameters:
            raise RefusedError(501, "NotImplemented", closes=True)
        store.count(kind)
        is_bucket = "/" not in self.path.strip("/")
        if is_bucket and not kind.endswith(("upload", "LIST", "many")):
            self._answer(200)
            return
        try:
            serve[kind]()
        except NoSuchUploadError as err:
            raise RefusedError(404, "NoSuchUpload") from err
        except InvalidPartError as err:
            raise RefusedError(400, "InvalidPart") from err

    def _kind(self) -> str:
        """Return what is asked for, as it is counted."""
        if self.method == "GET" and "list-type" in self.parameters:
            return "LIST"
        if self.method == "POST" and "delete" in self.parameters:
            return "DELETE many"
        kind = "COPY" if self.method == "PUT" and "x-amz-copy-source" in self.headers else self.method
        if "partNumber" in self.parameters:
            return f"{kind} part"
        return f"{kind} upload" if self.parameters.keys() & {"uploads", "uploadId"} else kind

    def _put(self) -> None:
        store = self.server.store
        is_new = self.headers.get("if-none-match") == "*"
        if is_new and store.get(self.path) is not None and "expect" in self.headers:
            # The client waits for "100 Continue", so it has not sent the body and the connection can go on.
            raise RefusedError(412, "PreconditionFailed")
        body, crc32 = self._read_body()
        store.count("bytes in", body.size_bytes)
        if crc32 not in {None, base64_of(body.crc32)}:
            raise RefusedError(400, "BadDigest")
        self._wait()
        stored = store.put(self.path, body, crc32, new=is_new)
        self._answer(200, _describe(stored, checksum=True))

    def _post_upload(self) -> None:
        store = self.server.store
        if "uploads" in self.parameters:
            is_summed_whole = self.headers.get("x-amz-checksum-type") == "FULL_OBJECT"
            upload_id = store.uploads.create(self.path, is_summed_whole=is_summed_whole)
            self._answer_xml(
                f"<InitiateMultipartUploadResult><UploadId>{upload_id}</UploadId></InitiateMultipartUploadResult>"
            )
            return
        request = self.rfile.read(int(self.headers["content-length"]))
        self._wait()
        is_new = self.headers.get("if-none-match") == "*"
        if is_new and store.get(self.path) is not None:
            raise RefusedError(412, "PreconditionFailed")
        body, crc32 = store.uploads.complete(self.path, self.parameters["uploadId"], request)
        if crc32 is not None and self.headers.get("x-amz-checksum-crc32", crc32) != crc32:
            raise RefusedError(400, "BadDigest")
        stored = store.put(self.path, body, crc32, new=is_new)
        self._answer_xml(f"<CompleteMultipartUploadResult><ETag>{stored.etag}</ETag></CompleteMultipartUploadResult>")

    def _put_part(self) -> None:
        body, crc32 = self._read_body()
        self.server.store.count("bytes in", body.size_bytes)
        if crc32 not in {None, base64_of(body.crc32)}:
            raise RefusedError(400, "BadDigest")
        self._wait()
        number = int(self.parameters["partNumber"])
        etag = self.server.store.uploads.put(self.path, self.parameters["uploadId"], number, body)
        self._answer(200, {"ETag": etag, "x-amz-checksum-crc32": base64_of(body.crc32)})

    def _list_upload(self) -> None:
        self._wait()
        uploads = self.server.store.uploads
        if "uploads" in self.parameters:
            self._answer_xml(uploads.list_uploads(f"{self.path}/{self.parameters.get('prefix', '')}"))
        else:
            self._answer_xml(uploads.list_parts(self.path, self.parameters["uploadId"]))

    def _abort_upload(self) -> None:
        self._wait()
        self.server.store.uploads.abort(self.path, self.parameters["uploadId"])
        self._answer(204)

    def _copy_part(self) -> None:
        source = self._source()
        start, end = 0, source.body.size_bytes
        if "x-amz-copy-source-range" in self.headers:
            start, end = _parse_range(self.headers["x-amz-copy-source-range"], end)
        self._wait()
        body = Body(self.server.store.arena)
        body.add_from(source.body, start, end)
        self.server.store.count("bytes copied", body.size_bytes)
        number = int(self.parameters["partNumber"])
        etag = self.server.store.uploads.put(self.path, self.parameters["uploadId"], number, body)
        sum_ = f"<ChecksumCRC32>{base64_of(body.crc32)}</ChecksumCRC32>"
        self._answer_xml(f"<CopyPartResult><ETag>{etag}</ETag>{sum_}</CopyPartResult>")

    def _copy(self) -> None:
        source = self._source()
        self._wait()
        stored = self.server.store.put(self.path, source.body, source.crc32)
        self._answer_xml(f"<CopyObjectResult><ETag>{stored.etag}</ETag></CopyObjectResult>")

    def _source(self) -> StoredObject:
        """Return the object that is to be copied."""
        source = self.server.store.get("/" + unquote(self.headers["x-amz-copy-source"]).lstrip("/"))
        if source is None:
            raise RefusedError(404, "NoSuchKey")
        if self.headers.get("x-amz-copy-source-if-match", source.etag).strip('"') != source.etag.strip('"'):
            raise RefusedError(412, "PreconditionFailed")
        return source

    def _get(self) -> None:
        stored = self._find()
        start, end = 0, stored.body.size_bytes
        status, headers = 200, _describe(stored, checksum="range" not in self.headers)
        if "range" in self.headers:
            start, end = _parse_range(self.headers["range"], end)
            status = 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{stored.body.size_bytes}"
        self._wait()
        self._send_head(status, headers, end - start)
        self.server.store.count("bytes out", end - start)
        pace = self._pacer()
        at = start
        while at < end:
            at += stored.body.send(self.connection, at, end)
            pace(at - start)

    def _head(self) -> None:
        stored = self._find()
        self._wait()
        self._send_head(200, _describe(stored, checksum="x-amz-checksum-mode" in self.headers), stored.body.size_bytes)

    def _delete(self) -> None:
        self._wait()
        self.server.store.delete(self.path)
        self._answer(204)

    def _list(self) -> None:
        self._wait()
        self._answer_xml(list_objects(self.server.store, self.path.strip("/"), self.parameters))

    def _delete_many(self) -> None:
        keys = keys_to_delete(self.rfile.read(int(self.headers["content-length"])))
        self._wait()
        for key in keys:
            self.server.store.delete(f"/{self.path.strip('/')}/{key}")
        self._answer_xml(describe_deleted(keys))

    def _find(self) -> StoredObject:
        stored = self.server.store.get(self.path)
        if stored is None:
            raise RefusedError(404, "NoSuchKey")
        if self.headers.get("if-match", stored.etag).strip('"') != stored.etag.strip('"'):
            raise RefusedError(412, "PreconditionFailed")
        return stored

    def _read_body(self) -> tuple[Body, str | None]:
        """Read the body of a PUT; return it with the CRC-32 that the client states."""
        if other := [name for name in self.headers if name.startswith("x-amz-checksum-") and name[15:] in OTHER_SUMS]:
            raise RefusedError(501, f"NotImplemented: {other[0]}", closes=True)
        is_chunked = "aws-chunked" in self.headers.get("content-encoding", "")
        length = self.headers.get("x-amz-decoded-content-length" if is_chunked else "content-length", "")
        if not length.isdigit():
            raise RefusedError(411, "MissingContentLength", closes=True)
        if self.headers.get("expect", "").lower() == "100-continue":
            self.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = Body(self.server.store.arena)
        pace = self._pacer()
        for size_bytes in self._chunks() if is_chunked else (int(length),):
            self._receive(size_bytes, body, pace)
        if body.size_bytes != int(length):
            raise RefusedError(400, "IncompleteBody", closes=True)
        trailer = dict(self._header_lines()) if is_chunked else {}
        return body, (self.headers | trailer).get("x-amz-checksum-crc32")

    def _chunks(self) -> Iterator[int]:
        """Yield the size of each `size[;extension] CRLF data CRLF`. The caller reads the data, and the trailer."""
        while size_bytes := int(self.rfile.readline(1 << 12).partition(b";")[0], 16):
            yield size_bytes
            self.rfile.readline(2)

    def _receive(self, size_bytes: int, body: Body, pace: Pace) -> None:
        end = body.size_bytes + size_bytes
        while body.size_bytes < end:
            with memoryview(self.buffer)[: end - body.size_bytes] as room:
                got = self.rfile.readinto1(room)
            if got == 0:
                raise ConnectionError
            with memoryview(self.buffer)[:got] as block:
                body.add(block)
            pace(body.size_bytes)

    def _pacer(self) -> Pace:
        rate = self.server.connection_bytes_s
        began = time.monotonic()

        def pace(passed_bytes: int) -> None:
            if rate and (early_s := began + passed_bytes / rate - time.monotonic()) > 0:
                time.sleep(early_s)

        return pace

    def _wait(self) -> None:
        if self.server.latency_s:
            jitter_s = self.server.jitter_s
            time.sleep(max(0.0, self.server.latency_s + random.uniform(-jitter_s, jitter_s)))

    def _answer(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        self._send_head(status, headers or {}, len(body), body)

    def _answer_xml(self, answer: str) -> None:
        self._answer(200, {"Content-Type": "application/xml"}, answer.encode())

    def _send_head(self, status: int, headers: dict[str, str], size_bytes: int, body: bytes = b"") -> None:
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Error')}", f"Content-Length: {size_bytes}", REQUEST_ID]
        lines.append(f"Date: {formatdate(usegmt=True)}")  # AWS's clock, for clients
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)


def _describe(stored: StoredObject, *, checksum: bool) -> dict[str, str]:
    modified = formatdate(stored.last_modified, usegmt=True)
    headers = {"ETag": stored.etag, "Last-Modified": modified, "Accept-Ranges": "bytes"}
    if checksum and stored.crc32 is not None:
        headers |= {"x-amz-checksum-crc32": stored.crc32, "x-amz-checksum-type": "FULL_OBJECT"}
    return headers


def _parse_range(value: str, size_bytes: int) -> tuple[int, int]:
    first, _, last = value.removeprefix("bytes=").partition("-")
    if first:
        start, end = int(first), min(int(last) + 1, size_bytes) if last else size_bytes
    else:
        start, end = max(0, size_bytes - int(last)), size_bytes
    if start >= end:
        raise RefusedError(416, "InvalidRange")
    return start, end


def main() -> None:
    """Serve until SIGTERM. The first line on standard output is the URL."""
    parser = argparse.ArgumentParser(description="A small, fast S3 for measurements, on loopback.")
    parser.add_argument("--port", type=int, default=0, help="default: any free one")
    parser.add_argument("--latency-ms", type=float, default=0, help="wait before each answer")
    parser.add_argument("--jitter-ms", type=float, default=0, help="most that a wait is longer or shorter")
    parser.add_argument("--connection-mib-s", type=float, default=0, help="limit of one connection; 0: none")
    parser.add_argument("--directory", help="keep objects in an unnamed file in this directory; default: in memory")
    parser.add_argument("--warm-mib", type=int, default=0, help="memory to touch before serving")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    store = Store(Arena(options.directory, options.warm_mib))
    with Server(options.port, store, options.latency_ms, options.jitter_ms, options.connection_mib_s) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
