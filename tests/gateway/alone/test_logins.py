"""Who may log in: the file, the command, tries that are bounded, and successes that are remembered."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from pathlib import Path

import pytest

from coldstream.errors import InvalidSettingError
from coldstream.gateway.alone import password_file
from coldstream.gateway.alone.logins import MAX_WAITING, Logins
from coldstream.gateway.alone.password_command import PasswordCommand
from coldstream.gateway.alone.password_file import PasswordFile, PasswordHash, hash_password
from tests.support.alone import DictPasswords


def users(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_right_password_of_a_user_is_right_and_no_other(tmp_path: Path) -> None:
    path = users(
        tmp_path / "users",
        "# people",
        "",
        f"ana:{hash_password('s3cret')}",
        f"jürgen müller:{hash_password('pass:wörd')}",
    )
    found = PasswordFile(path)
    assert found.check("ana", "s3cret")
    assert found.check("jürgen müller", "pass:wörd")
    for user, password in (("ana", "s3cre"), ("ana", ""), ("nobody", "s3cret"), ("", ""), ("ana", "\udcff")):
        assert not found.check(user, password)


def test_a_hash_is_another_one_each_time_and_reads_as_it_was_written() -> None:
    one, other = hash_password("x"), hash_password("x")
    assert one != other
    assert str(PasswordHash.parse(one)) == one
    assert "x" not in one.split("$")


@pytest.mark.parametrize(
    "line",
    [
        "ana",
        "ana:plain",
        "ana:scrypt$16384$8$1$AAAA$AAAA",
        "ana:scrypt$1$8$1$AAAAAAAAAAAAAAAAAAAAAA==$" + "A" * 43 + "=",
        "ana:scrypt$1048576$8$16$AAAAAAAAAAAAAAAAAAAAAA==$" + "A" * 43 + "=",
        "ana:scrypt$x$8$1$AAAAAAAAAAAAAAAAAAAAAA==$" + "A" * 43 + "=",
        ":" + str(PasswordHash(2, 1, 1, bytes(16), bytes(32))),
    ],
)
def test_a_malformed_line_is_named_by_its_number_and_not_shown(tmp_path: Path, line: str) -> None:
    with pytest.raises(InvalidSettingError, match="line 2") as raised:
        PasswordFile(users(tmp_path / "users", f"ok:{PasswordHash(2, 1, 1, bytes(16), bytes(32))}", line))
    assert line.partition(":")[2][:20] not in str(raised.value) or not line.partition(":")[2]


def test_a_file_that_everybody_may_write_or_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = users(tmp_path / "users", f"ok:{PasswordHash(2, 1, 1, bytes(16), bytes(32))}")
    path.chmod(0o666)
    with pytest.raises(InvalidSettingError, match="chmod"):
        PasswordFile(path)
    with pytest.raises(InvalidSettingError, match="users_file"):
        PasswordFile(tmp_path / "none")
    with pytest.raises(InvalidSettingError, match="no user"):
        PasswordFile(users(tmp_path / "empty", "# nobody"))


def test_a_changed_file_is_read_again_and_a_broken_one_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(password_file, "_LOOK_EVERY_S", 0.0)
    path = users(tmp_path / "users", f"ana:{hash_password('one')}")
    found = PasswordFile(path)
    users(path, f"ana:{hash_password('two')}")
    os.utime(path, ns=(1, 1))
    assert found.check("ana", "two")
    users(path, "broken")
    assert found.check("ana", "two")
    assert "those before stay" in caplog.text


CHECK = """
import sys
user, password = sys.stdin.read().splitlines()
sys.exit(0 if (user, password) == ("ana", "s3cret") else 1)
"""


def test_a_command_decides_by_its_exit_code() -> None:
    command = PasswordCommand([sys.executable, "-c", CHECK])
    assert command.check("ana", "s3cret")
    assert not command.check("ana", "wrong")
    assert not command.check("ana\ns3cret", "x")


def test_a_command_that_hangs_fails_or_is_not_there_is_a_no_that_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert not PasswordCommand([sys.executable, "-c", "import time; time.sleep(60)"], timeout_s=0.2).check(
        "a", "hidden"
    )
    assert not PasswordCommand([sys.executable, "-c", "import sys; sys.exit(3)"]).check("a", "hidden")
    assert not PasswordCommand(["/nowhere/at/all"]).check("a", "hidden")
    assert len(caplog.records) == 3
    assert "hidden" not in caplog.text


async def test_a_success_is_remembered_for_a_short_while() -> None:
    now = 0.0
    passwords = DictPasswords(ana="one")
    logins = Logins(passwords, cache_s=30, clock=lambda: now)
    for _ in range(3):
        assert await logins.is_right("a", "ana", "one")
    assert passwords.checks == 1
    now = 31.0
    passwords.users["ana"] = "two"
    assert not await logins.is_right("a", "ana", "one")
    logins.close()


async def test_an_address_that_fails_too_often_is_refused_unchecked_for_a_while() -> None:
    now = 0.0
    passwords = DictPasswords(ana="one")
    logins = Logins(passwords, max_failures=3, failures_s=60, clock=lambda: now)
    for _ in range(3):
        assert not await logins.is_right("bad", "ana", "guess")
    assert not await logins.is_right("bad", "ana", "one")
    assert passwords.checks == 3
    assert await logins.is_right("good", "ana", "one")
    now = 61.0
    assert await logins.is_right("bad", "ana", "one")
    logins.close()


async def test_checks_under_way_and_those_that_wait_are_bounded() -> None:
    let_go = threading.Event()
    most = running = 0
    lock = threading.Lock()

    class Slow:
        def check(self, user: str, password: str) -> bool:
            nonlocal most, running
            with lock:
                running += 1
                most = max(most, running)
            let_go.wait(30)
            with lock:
                running -= 1
            return True

    logins = Logins(Slow())
    waiting = [asyncio.create_task(logins.is_right("a", f"user {number}", "x")) for number in range(MAX_WAITING + 10)]
    await asyncio.sleep(0.2)
    assert sum(one.done() and not one.result() for one in waiting) == 10
    let_go.set()
    assert sum(await asyncio.gather(*waiting)) == MAX_WAITING
    assert most <= 2
    logins.close()
