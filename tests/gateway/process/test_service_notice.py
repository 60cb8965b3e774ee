from __future__ import annotations

import socket
from pathlib import Path

import pytest

from coldstream.gateway.process.service_notice import notify_supervisor


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_systemd_is_told_where_it_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    shown = str(tmp_path / "notice") if kind == "path" else f"@{tmp_path.name}-notice"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(shown.replace("@", "\0", 1) if kind == "abstract" else shown)
        listening.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", shown)
        notify_supervisor("READY=1")
        assert listening.recv(64) == b"READY=1"


@pytest.mark.parametrize("address", ["", "relative", "/no/such/socket"])
def test_without_systemd_nothing_happens(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    notify_supervisor("READY=1")
