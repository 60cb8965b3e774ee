"""The server as a process, over the emulated AWS: its beginning, its end, and its death."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from signal import SIGINT, SIGTERM, Signals
from urllib.parse import urlsplit

import httpx
import pytest

from coldstream.manifest.entry import Head
from coldstream.store.direct_names import find_name
from coldstream.store.objects import S3Objects
from coldstream.store.table import DynamoTable
from tests.support.fixtures import do_without
from tests.support.serve_process import NotReadyError, ServeProcess

TEXT = {"Content-Type": "text/plain"}
JSON = {"Content-Type": "application/json"}
PATIENCE_S = 60


@pytest.fixture
def environment(table_name: str, s3_objects: S3Objects) -> Mapping[str, str]:
    return {"COLDSTREAM_TABLE": table_name, "COLDSTREAM_BUCKET": s3_objects.bucket}


@pytest.fixture
def server(environment: Mapping[str, str], tmp_path: Path) -> Iterator[ServeProcess]:
    with ServeProcess(environment, tmp_path / "log") as running:
        yield running


def head_of(environment: Mapping[str, str], name: str) -> Head:
    table = DynamoTable(environment["COLDSTREAM_TABLE"])
    known = find_name(table, "/", name)
    assert known is not None
    head = table.head(known.stream.incarnation)
    assert head is not None
    return head


@pytest.mark.parametrize("ending", [SIGTERM, SIGINT])
def test_a_signal_ends_live_reads_and_the_server_closes_its_streams(
    server: ServeProcess, environment: Mapping[str, str], ending: Signals
) -> None:
    url = f"{server.url}/v1/stream/notes"
    with httpx.Client(timeout=PATIENCE_S) as client, ThreadPoolExecutor() as threads:
        assert client.put(url, headers=TEXT).status_code == 201
        assert client.post(url, headers=TEXT, content=b"hello").status_code == 204
        poll = threads.submit(httpx.get, f"{url}?offset=now&live=long-poll", timeout=PATIENCE_S)
        with client.stream("GET", f"{url}?offset=now&live=sse") as events:
            lines = events.iter_lines()
            assert next(lines) == "event: control"
            while "coldstream_serve_live_reads 2" not in httpx.get(f"{server.url}/metrics").text:
                time.sleep(0.01)
            server.signal(ending)
            for _ in lines:
                pass
        assert poll.result().status_code == 204
    assert server.wait() == 0
    head = head_of(environment, "notes")
    assert head.appender is not None
    assert (head.appender.openings, head.next_offset) == ((), 1)


def test_a_request_under_way_is_finished_before_the_server_ends(server: ServeProcess) -> None:
    url = f"{server.url}/v1/stream/notes"
    httpx.put(url, headers=TEXT)
    may_go_on = threading.Event()

    def body() -> Iterator[bytes]:
        yield b"first half, "
        assert may_go_on.wait(PATIENCE_S)
        yield b"second half"

    with ThreadPoolExecutor() as threads:
        sending = threads.submit(httpx.post, url, headers=TEXT, content=body(), timeout=PATIENCE_S)
        while "coldstream_serve_buffered_bytes 12" not in httpx.get(f"{server.url}/metrics").text:
            time.sleep(0.01)
        server.signal(SIGTERM)
        while '"ending"' not in server.log.read_text():
            time.sleep(0.01)
        may_go_on.set()
        assert sending.result().status_code == 204
    assert server.wait() == 0
    server.start()
    assert httpx.get(f"{server.url}/v1/stream/notes").text == "first half, second half"


def test_a_second_signal_ends_the_server_at_once(server: ServeProcess) -> None:
    url = urlsplit(server.url)
    httpx.put(f"{server.url}/v1/stream/notes", headers=TEXT)
    with socket.create_connection((url.hostname, url.port)) as stuck:
        stuck.sendall(b"POST /v1/stream/notes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nhalf")
        while "coldstream_serve_buffered_bytes 4" not in httpx.get(f"{server.url}/metrics").text:
            time.sleep(0.01)
        server.signal(SIGTERM)
        while '"ending"' not in server.log.read_text():
            time.sleep(0.01)
        server.signal(SIGTERM)
        assert server.wait() == 130


def test_what_was_acknowledged_survives_a_kill(server: ServeProcess) -> None:
    url = f"{server.url}/v1/stream/counts"
    httpx.put(url, headers=JSON)
    acknowledged: set[int] = set()

    def append(first: int) -> None:
        with httpx.Client(timeout=PATIENCE_S) as client:
            for number in range(first, 1_000_000, 4):
                try:
                    answer = client.post(url, headers=JSON, content=b"%d" % number)
                except httpx.TransportError:
                    return
                assert answer.status_code == 204
                acknowledged.add(number)

    with ThreadPoolExecutor() as threads:
        appending = [threads.submit(append, first) for first in range(4)]
        while len(acknowledged) < 40:
            time.sleep(0.01)
        server.kill()
        for one in appending:
            one.result()
    server.start()
    found = httpx.get(f"{server.url}/v1/stream/counts", timeout=PATIENCE_S).json()
    assert acknowledged <= set(found)
    assert len(found) == len(set(found))
    assert httpx.post(f"{server.url}/v1/stream/counts", headers=JSON, content=b"-1", timeout=PATIENCE_S).is_success


def test_a_repeated_request_of_a_producer_is_known_after_a_kill(server: ServeProcess) -> None:
    producer = {**TEXT, "Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
    httpx.put(f"{server.url}/v1/stream/notes", headers=TEXT)
    assert httpx.post(f"{server.url}/v1/stream/notes", headers=producer, content=b"once").status_code == 200
    server.kill()
    server.start()
    url = f"{server.url}/v1/stream/notes"
    assert httpx.post(url, headers=producer, content=b"once", timeout=PATIENCE_S).status_code == 204
    assert httpx.get(url).text == "once"


def test_a_server_takes_over_what_another_one_serves(environment: Mapping[str, str], tmp_path: Path) -> None:
    with (
        ServeProcess(environment, tmp_path / "first") as first,
        ServeProcess(environment, tmp_path / "second") as second,
    ):
        urls = [f"{server.url}/v1/stream/notes" for server in (first, second)]
        httpx.put(urls[0], headers=TEXT)
        httpx.post(urls[0], headers=TEXT, content=b"a")
        assert httpx.post(urls[1], headers=TEXT, content=b"b", timeout=PATIENCE_S).status_code == 204
        refused = httpx.post(urls[0], headers=TEXT, content=b"never", timeout=PATIENCE_S)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:coldstream:problem:served-elsewhere")
        assert int(refused.headers["Retry-After"]) >= 1
        assert httpx.get(urls[1]).text == "ab"
        first.signal(SIGTERM)
        assert first.wait() == 0  # what it has lost, it need not close


def test_tokens_decide_who_may_do_what(environment: Mapping[str, str], tmp_path: Path) -> None:
    grants = [("reader", "r", "notes"), ("writer", "rw", "*")]
    tokens = tmp_path / "tokens"
    tokens.write_text(
        "".join(
            f"{sha256(f'{name}-token'.encode()).hexdigest()} {name} {rights} {pattern}\n"
            for name, rights, pattern in grants
        )
    )
    with ServeProcess(environment, tmp_path / "log", "--host", "0.0.0.0", "--token-file", tokens) as server:
        url = f"http://127.0.0.1:{urlsplit(server.url).port}/v1/stream/notes"
        reader, writer = ({"Authorization": f"Bearer {name}-token"} for name, *_ in grants)
        assert httpx.put(url, headers=TEXT).status_code == 401
        assert httpx.put(url, headers={**TEXT, **reader}).status_code == 403
        assert httpx.put(url, headers={**TEXT, **writer}, content=b"secret").status_code == 201
        assert httpx.get(url, headers=reader).text == "secret"
        assert httpx.get(url).headers["WWW-Authenticate"] == "Bearer"
        server.signal(SIGTERM)
        assert server.wait() == 0
        assert "-token" not in server.log.read_text()


def test_a_certificate_makes_it_https(environment: Mapping[str, str], tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        do_without("openssl", "on Debian: apt-get install openssl")
    certificate, key = tmp_path / "certificate", tmp_path / "key"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    options = ("--certificate", certificate, "--private-key", key)
    with ServeProcess(environment, tmp_path / "log", *options) as server:
        assert server.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(certificate))
        assert httpx.get(f"{server.url}/healthz", verify=trusting).text == "ok\n"


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_without_tokens_the_server_listens_at_the_loopback_only(
    environment: Mapping[str, str], tmp_path: Path, host: str
) -> None:
    with pytest.raises(NotReadyError, match="can be reached from other machines"):
        ServeProcess(environment, tmp_path / "log", "--host", host).start()


def test_a_port_in_use_is_told_in_a_line(environment: Mapping[str, str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(NotReadyError, match="Address already in use"):
            ServeProcess(environment, tmp_path / "log", "--port", str(port)).start()
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_curl_reads_and_writes(server: ServeProcess) -> None:
    def curl(*arguments: str) -> str:
        done = subprocess.run(["curl", "-sSf", *arguments], capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    url = f"{server.url}/v1/stream/notes"
    curl("-X", "PUT", "-H", "Content-Type: text/plain", url)
    curl("-H", "Content-Type: text/plain", "-d", "hello", url)
    assert curl(url) == "hello"
