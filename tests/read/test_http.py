"""Requests over connections that are kept, and responses that are read as they are."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coldstream.errors import UnavailableError
from coldstream.read.http import HttpClient
from coldstream.read.response import HttpResponse


class Server:
    """Answers each request with the next of `answers`; an answer in parts comes over connections of their own."""

    def __init__(self, answers: list[bytes]) -> None:
        self.answers = answers
        self.targets: list[str] = []
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            while request := connection.recv(65536):
                self.targets.append(request.split()[1].decode())
                answer = self.answers.pop(0)
                connection.sendall(answer)
                if b"close" in answer or b"cut" in answer:
                    return


def response(body: bytes, *headers: str, length: int | None = None) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body) if length is None else length}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextmanager
def asking(*answers: bytes, attempts: int = 1) -> Iterator[tuple[Server, HttpClient]]:
    server = Server(list(answers))
    client = HttpClient(connections=2, attempts=attempts)
    try:
        yield server, client
    finally:
        client.close()
        server.close()


def whole(got: HttpResponse) -> bytes:
    return got.read(1000)


def test_a_connection_is_kept_for_the_next_request() -> None:
    with asking(response(b"one"), response(b"two")) as (server, client):
        assert [client.get(f"{server.url}/a", dict, whole) for _ in range(2)] == [b"one", b"two"]
        assert server.connections == 1


def test_a_connection_whose_response_was_not_read_to_its_end_is_not_used_again() -> None:
    with asking(response(b"a long body"), response(b"two")) as (server, client):
        assert client.get(f"{server.url}/a", dict, lambda got: got.read(3)) == b"a l"
        assert client.get(f"{server.url}/a", dict, whole) == b"two"
        assert server.connections == 2


def test_a_connection_that_the_server_closed_meanwhile_costs_no_attempt() -> None:
    with asking(response(b"one", "Connection: close"), response(b"two")) as (server, client):
        assert [client.get(f"{server.url}/a", dict, whole) for _ in range(2)] == [b"one", b"two"]


@pytest.mark.parametrize("headers", [("Content-Encoding: gzip",), ()])
def test_a_body_comes_as_it_is(headers: tuple[str, ...]) -> None:
    with asking(response(b"\x00no gzip", *headers)) as (server, client):
        assert client.get(f"{server.url}/a", dict, whole) == b"\x00no gzip"


def test_a_body_fills_a_buffer_of_the_caller() -> None:
    room = bytearray(8)
    with asking(response(b"12345678")) as (server, client):
        client.get(f"{server.url}/a", dict, lambda got: got.read_into(memoryview(room)))
    assert room == b"12345678"


@pytest.mark.parametrize("read", [whole, lambda got: got.read_into(memoryview(bytearray(9)))])
def test_a_body_that_is_cut_is_tried_again(read: object) -> None:
    with asking(response(b"cut", length=9), response(b"123456789"), attempts=2) as (server, client):
        assert client.get(f"{server.url}/a", dict, read) in {b"123456789", None}  # type: ignore[arg-type]
        assert server.connections == 2


def test_a_failure_names_no_query() -> None:
    with asking(response(b"cut", length=9)) as (server, client), pytest.raises(UnavailableError) as caught:
        client.get(f"{server.url}/a?signature=secret", dict, whole)
    assert "secret" not in str(caught.value)
    assert f"GET {server.url}/a: " in str(caught.value)


def test_a_target_is_sent_as_it_stands_and_what_no_request_may_have_is_encoded() -> None:
    with asking(response(b""), response(b""), response(b"")) as (server, client):
        for path in ("/a%2Fb?x=%20+&y=a,b", "", "/ä b"):
            client.get(server.url + path, dict, whole)
        assert server.targets == ["/a%2Fb?x=%20+&y=a,b", "/", "/%C3%A4%20b"]
