"""What an operator changes while clients are connected: users who go, rights that go, and files in the middle."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest

from coldstream.gateway.alone import watched_file
from coldstream.gateway.alone.options import LEAST_FRAME_BYTES
from coldstream.gateway.alone.password_file import PasswordFile, PasswordHash
from coldstream.gateway.alone.permission_file import PermissionFile
from coldstream.gateway.alone.permissions import StreamPermissions
from coldstream.gateway.frames.answers import OpenAnswer
from coldstream.gateway.frames.keys import Code, Key
from coldstream.gateway.frames.requests import Close, Create, Heartbeat, Open, Subscribe, Tune
from coldstream.manifest.spec import FIRST
from coldstream.streams import DirectArchive
from tests.support.alone import DictPasswords, RawClient, running_alone


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_file, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(watched_file, "_TRY_EVERY_S", 0.05)


@pytest.fixture
def archive() -> DirectArchive:
    return DirectArchive.in_memory()


async def test_a_user_who_is_taken_out_is_let_go_and_the_others_stay(archive: DirectArchive, tmp_path: Path) -> None:
    path = tmp_path / "users"
    lines = {user: f"{user}:{PasswordHash.of(user)}\n" for user in ("ana", "bob")}
    path.write_text("".join(lines.values()))
    passwords = PasswordFile(path)
    async with (
        running_alone(archive, passwords=passwords) as alone,
        alone.client("ana", "ana") as ana,
        alone.client("bob", "bob") as bob,
    ):
        path.write_text("half a fi")
        await asyncio.sleep(0.2)
        path.write_text(lines["bob"])
        closed = Close.from_body(await ana.next_of(Key.CLOSE))
        assert closed.code == Code.ACCESS_REFUSED
        assert await bob.code(lambda number: Create(number, "orders", {})) == Code.OK


async def test_rights_that_are_taken_away_end_what_they_were_for(archive: DirectArchive, tmp_path: Path) -> None:
    path = tmp_path / "rules"
    path.write_text("admin * * rw\nana / orders rw\nana / logs rw\n")
    async with (
        running_alone(archive, permissions=PermissionFile(path)) as alone,
        alone.client("admin") as admin,
        alone.client("ana") as ana,
    ):
        for at, name in enumerate(("orders", "logs")):
            assert await admin.code(lambda number, name=name: Create(number, name, {})) == Code.OK
            subscribe = lambda number, at=at, name=name: Subscribe(number, at, name, FIRST, 1, {})  # noqa: E731
            assert await ana.code(subscribe) == Code.OK
        path.write_text("admin * * rw\nana / logs r\n")
        assert (await ana.next_of(Key.METADATA_UPDATE)).endswith(b"orders")
        assert await ana.code(lambda number: Subscribe(number, 0, "orders", FIRST, 1, {})) == Code.ACCESS_REFUSED
        path.write_text("admin * * rw\n")
        assert Close.from_body(await ana.next_of(Key.CLOSE)).code == Code.ACCESS_REFUSED


async def test_a_login_that_cannot_be_checked_is_not_said_to_be_wrong(archive: DirectArchive) -> None:
    class Broken(DictPasswords):
        def check(self, user: str, password: str) -> bool:
            raise RuntimeError("a defect")

    async with running_alone(archive, passwords=Broken()) as alone, RawClient.connected(alone.port) as client:
        await client.greet()
        assert await client.authenticate("ana", "one") == Code.INTERNAL_ERROR
        assert await client.is_closed()


async def test_frames_are_small_until_the_vhost_is_open(archive: DirectArchive) -> None:
    async with running_alone(archive) as alone, RawClient.connected(alone.port) as client:
        await client.greet()
        assert await client.authenticate("ana", "one") == Code.OK
        client.send(Tune(1 << 20, 0).to_bytes(), struct.pack(">I", LEAST_FRAME_BYTES + 1))
        assert await client.is_closed()
    async with running_alone(archive) as alone, RawClient.connected(alone.port) as client:
        await client.greet()
        assert await client.authenticate("ana", "one") == Code.OK
        client.send(Tune(1 << 20, 0).to_bytes())
        assert (await client.ask(lambda number: Open(number, "/"), OpenAnswer)).code == Code.OK
        client.send(struct.pack(">IHH", 100_000, Key.HEARTBEAT, 1) + bytes(99_996))
        assert await client.code(lambda number: Create(number, "orders", {})) == Code.OK


async def test_a_defect_of_one_connection_ends_the_heartbeats_of_no_other(
    archive: DirectArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        running_alone(archive) as alone,
        RawClient.connected(alone.port) as bad,
        RawClient.connected(alone.port) as good,
    ):
        await bad.log_in()
        connection = min(alone.server._connections, key=lambda one: one._number)

        def fail(now: float) -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr(connection, "tick", fail)
        await good.log_in(heartbeat_s=1)
        assert await bad.is_closed()
        for _ in range(2):
            await good.next_of(Key.HEARTBEAT)
            good.send(Heartbeat().to_bytes())


async def test_permissions_that_do_not_change_are_not_looked_through(archive: DirectArchive) -> None:
    rules = StreamPermissions.parse(["* * * rw"])
    async with running_alone(archive, permissions=rules) as alone, alone.client():
        (connection,) = alone.server._connections
        assert connection._may_stay()
        assert connection._permitted is rules
