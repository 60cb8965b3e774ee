"""The command line at an API that wants a token."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

TOKEN = "header.claims.signature"


class _Gateway(BaseHTTPRequestHandler):
    """Lists no streams, for who has the token."""

    def do_GET(self) -> None:
        may = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        body = b'{"streams": [], "cursor": null}' if may else b'{"message":"Unauthorized"}'
        self.send_response(200 if may else 401)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("COLDSTREAM_TOKEN", "COLDSTREAM_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Gateway) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_token_of_the_environment_is_sent(gateway: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSTREAM_TOKEN", TOKEN)
    assert cli("streams", "--resolver", gateway).code == 0


def test_a_token_in_a_file_is_sent(gateway: str, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    monkeypatch.setenv("COLDSTREAM_TOKEN_FILE", str(tmp_path / "token"))
    assert cli("streams", "--resolver", gateway).code == 0


def test_a_token_that_is_refused_is_reported_with_what_to_check(
    gateway: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLDSTREAM_TOKEN", "another")
    done = cli("streams", "--resolver", gateway)
    assert done.code == 6
    assert "answered 401" in done.err
    assert "COLDSTREAM_TOKEN" in done.err
    assert "another" not in done.err


def test_a_file_without_a_token_is_named(
    gateway: str, cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLDSTREAM_TOKEN_FILE", str(tmp_path / "none"))
    done = cli("streams", "--resolver", gateway)
    assert done.code == 2
    assert "COLDSTREAM_TOKEN_FILE: no token can be read there" in done.err
    assert "coldstream up" not in done.err
