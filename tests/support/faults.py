"""A proxy before an emulated AWS that fails as AWS does: errors, latency, dropped connections, outages.

    with FaultyAws(endpoint, seed=1) as aws:
        client = boto3.client("s3", endpoint_url=aws.url)
        aws.faults = Faults(error_rate=0.3, latency_s=0.2)

Requests and responses are streamed, and connections kept alive. What goes wrong with a request is drawn from a seeded
generator; with several clients at once, who draws which number is a matter of their order.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.support.epmd import HOST, free_ports
from tests.support.http_relay import Head, RelayError, discard_body, read_head, relay_body

REFUSALS = ((500, "InternalError"), (503, "SlowDown"), (429, "ThrottlingException"))
EXPIRED = (403, "ExpiredTokenException")
STATUS_TEXT = {403: "Forbidden", 429: "Too Many Requests", 500: "Internal Server Error", 503: "Service Unavailable"}


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong, from now on. Rates are probabilities of one request; half of what is dropped was carried out.

    `latency_s` is the mean of what each request is held up. `expired` is the access key whose requests are refused.
    `is_out` refuses connections, and cuts those that are there.
    """

    error_rate: float = 0.0
    drop_rate: float = 0.0
    latency_s: float = 0.0
    expired: str | None = None
    is_out: bool = False


class FaultyAws:
    """The proxy, on a port of its own, in a thread of its own; used as a context manager.

    `counts` says how many requests were passed on, refused and dropped.
    """

    def __init__(self, upstream_url: str, *, seed: int) -> None:
        upstream = urlsplit(upstream_url)
        self._upstream = upstream.hostname, upstream.port
        self._random = random.Random(seed)
        self._faults = Faults()
        self._serving: set[asyncio.Task[None]] = set()
        (self._port,) = free_ports(1)
        self.url = f"http://{HOST}:{self._port}"
        self.counts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), name="faulty AWS")
        self._thread.start()
        started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    @property
    def faults(self) -> Faults:
        """What goes wrong now."""
        return self._faults

    @faults.setter
    def faults(self, faults: Faults) -> None:
        asyncio.run_coroutine_threadsafe(self._change(faults), self._loop).result()

    def _run(self, started: threading.Event) -> None:
        asyncio.run(self._live(started))

    async def _live(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        await self._open()
        started.set()
        await self._ended.wait()
        await self._shut()

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self._port)

    async def _shut(self) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _change(self, faults: Faults) -> None:
        was_out, self._faults = self._faults.is_out, faults
        if faults.is_out and not was_out:
            await self._shut()
        elif was_out and not faults.is_out:
            await self._open()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        ends = [writer]
        try:
            while (request := await read_head(reader)) is not None:
                if len(ends) == 1:
                    upstream_reader, upstream_writer = await asyncio.open_connection(*self._upstream)
                    ends.append(upstream_writer)
                if not await self._answer(request, reader, writer, upstream_reader, upstream_writer):
                    break
        except (OSError, EOFError, RelayError):
            pass  # one of the two is gone, and so is the other now
        except asyncio.CancelledError:  # an outage: nothing more is said
            for end in ends:
                end.transport.abort()
        finally:
            for end in ends:
                end.close()
            for end in ends:
                with suppress(OSError):
                    await end.wait_closed()
            self._serving.discard(task)

    async def _answer(
        self,
        request: Head,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream_reader: asyncio.StreamReader,
        upstream_writer: asyncio.StreamWriter,
    ) -> bool:
        """Answer a request, and return whether the connection can take another."""
        faults = self._faults
        if faults.latency_s:
            await asyncio.sleep(self._random.uniform(0, 2 * faults.latency_s))
        if request.expects_continue:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        is_expired = faults.expired is not None and f"Credential={faults.expired}/" in request.fields.get(
            "authorization", ""
        )
        if is_expired or self._random.random() < faults.error_rate:
            self.counts["refused"] += 1
            await discard_body(request, reader)
            writer.write(_refusal(request, *(EXPIRED if is_expired else self._random.choice(REFUSALS))))
            await writer.drain()
            return True
        is_dropped = self._random.random() < faults.drop_rate
        self.counts["dropped" if is_dropped else "passed"] += 1
        before_it_is_carried_out = is_dropped and self._random.random() < 0.5
        upstream_writer.write(request.to_bytes())
        if not await relay_body(request, reader, upstream_writer, cut_half_way=before_it_is_carried_out):
            return False
        response = await read_head(upstream_reader)
        if response is None:
            return False
        response = response.answering(request)
        if is_dropped and not response.body_bytes:
            return False
        writer.write(response.to_bytes())
        if not await relay_body(response, upstream_reader, writer, cut_half_way=is_dropped):
            return False
        return not is_dropped and response.keeps_alive


def _refusal(request: Head, status: int, code: str) -> bytes:
    """Make the answer of a service that refuses: S3 speaks XML, the others JSON."""
    if "x-amz-target" in request.fields or "x-amz-json" in request.fields.get("content-type", ""):
        kind = "application/x-amz-json-1.1"
        body = f'{{"__type":"com.amazonaws#{code}","message":"as asked for by a test"}}'
    else:
        kind, code = "application/xml", "ExpiredToken" if status == EXPIRED[0] else code
        body = f"<Error><Code>{code}</Code><Message>as asked for by a test</Message></Error>"
    body = "" if request.method == "HEAD" else body
    head = f"HTTP/1.1 {status} {STATUS_TEXT[status]}\r\nx-amzn-RequestId: of-a-test\r\n"
    return f"{head}Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
