"""Who may log in: the file, the command, tries that are bounded, and successes that are remembered."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from coldstream.errors import InvalidSettingError, UnavailableError
from coldstream.gateway.alone import watched_file
from coldstream.gateway.alone.logins import MAX_WAITING, USERS_OF_ADDRESS, Logins, NoPasswords
from coldstream.gateway.alone.password_command import PasswordCommand
from coldstream.gateway.alone.password_file import PasswordFile, PasswordHash, hash_password
from tests.support.alone import DictPasswords
from tests.support.interposed_archive import settle


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
    monkeypatch.setattr(watched_file, "LOOK_EVERY_S", 0.0)
    path = users(tmp_path / "users", f"ana:{hash_password('one')}")
    found = PasswordFile(path)
    users(path, f"ana:{hash_password('two')}")
    os.utime(path, ns=(1, 1))
    assert found.check("ana", "two")
    users(path, "broken")
    assert found.check("ana", "two")
    assert "what it said before stays" in caplog.text
    users(path, f"bob:{hash_password('three')}")
    assert found.check("bob", "three")
    assert not found.check("ana", "two")
    assert not found.knows("ana")


def test_half_a_file_of_users_changes_nothing_wherever_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_file, "LOOK_EVERY_S", 0.0)
    small = str(PasswordHash(2, 1, 1, bytes(range(16)), bytes(range(32))))
    whole = f"ana:{small}"
    path = users(tmp_path / "users", whole)
    found = PasswordFile(path)
    for end in range(len(whole)):
        path.write_text(whole[:end])
        found.look()
        assert found.current == {"ana": PasswordHash.parse(small)}, end


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


def test_a_command_that_hangs_fails_or_is_not_there_says_neither_yes_nor_no(caplog: pytest.LogCaptureFixture) -> None:
    for command, timeout_s in (
        ([sys.executable, "-c", "import time; time.sleep(60)"], 0.2),
        ([sys.executable, "-c", "import sys; sys.exit(3)"], 60.0),
        ([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"], 60.0),
        (["/nowhere/at/all"], 60.0),
    ):
        with pytest.raises(UnavailableError) as raised:
            PasswordCommand(command, timeout_s=timeout_s).check("a", "hidden")
        assert "hidden" not in str(raised.value)
    assert len(caplog.records) == 4
    assert "hidden" not in caplog.text


def test_what_a_command_that_hangs_has_started_ends_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {note}; wait"
    with pytest.raises(UnavailableError):
        PasswordCommand(["/bin/sh", "-c", script], timeout_s=1.0).check("a", "b")
    pid = int(note.read_text())
    deadline = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_command_that_floods_its_output_and_reads_no_input_is_no_obstacle() -> None:
    flood = "import os\nfor _ in range(2000): os.write(1, bytes(65536)); os.write(2, bytes(65536))"
    assert PasswordCommand([sys.executable, "-c", flood]).check("a", "x" * 1_000_000)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


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


async def test_a_client_with_a_wrong_password_shuts_out_no_other_of_its_address() -> None:
    passwords = DictPasswords(ana="one", bob="two")
    logins = Logins(passwords, max_failures=3)
    for _ in range(100):
        assert not await logins.is_right("balancer", "ana", "old")
    assert passwords.checks == 3
    assert await logins.is_right("balancer", "bob", "two")
    logins.close()


async def test_guesses_for_ever_new_users_have_the_address_refused() -> None:
    passwords = DictPasswords(ana="one")
    logins = Logins(passwords, max_failures=3)
    for number in range(100):
        assert not await logins.is_right("bad", f"user {number}", "guess")
    assert passwords.checks == 3 * USERS_OF_ADDRESS
    assert await logins.is_right("good", "ana", "one")
    logins.close()


async def test_addresses_of_one_network_of_ipv6_are_one() -> None:
    passwords = DictPasswords(ana="one")
    logins = Logins(passwords, max_failures=3)
    for number in range(10):
        assert not await logins.is_right(f"2001:db8::{number:x}", "ana", "guess")
    assert passwords.checks == 3
    assert await logins.is_right("2001:db8:0:1::1", "ana", "one")
    for address in ("::ffff:192.0.2.1", "192.0.2.1", "fe80::1%eth0", ""):
        assert not await logins.is_right(address, "bob", "guess")
    logins.close()


async def test_an_empty_password_is_wrong_whatever_the_command_says() -> None:
    logins = Logins(NoPasswords())
    assert not await logins.is_right("a", "ana", "")
    logins.close()


class SlowPasswords(DictPasswords):
    """Checks only once it is let go."""

    def __init__(self, **users: str) -> None:
        super().__init__(**users)
        self.let_go = threading.Event()
        self.running = self.most = 0
        self._lock = threading.Lock()

    def check(self, user: str, password: str) -> bool:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        assert self.let_go.wait(60)
        with self._lock:
            self.running -= 1
            return super().check(user, password)


async def test_all_clients_of_a_user_that_come_at_a_time_cost_one_check() -> None:
    passwords = SlowPasswords(ana="one")
    logins = Logins(passwords)
    waiting = [asyncio.create_task(logins.is_right("a", "ana", "one")) for _ in range(5000)]
    await asyncio.sleep(0)
    passwords.let_go.set()
    assert all(await asyncio.gather(*waiting))
    assert passwords.checks == 1
    logins.close()


async def test_checks_under_way_and_those_that_wait_are_bounded_and_what_is_over_is_not_said_to_be_wrong() -> None:
    users = {f"user{number}": "x" for number in range(MAX_WAITING + 10)}
    passwords = SlowPasswords(**users)
    logins = Logins(passwords)
    waiting = [asyncio.create_task(logins.is_right(user, user, "x")) for user in users]
    await settle()
    done = {one for one in waiting if one.done()}
    assert len(done) == 10
    assert all(isinstance(one.exception(), UnavailableError) for one in done)
    passwords.let_go.set()
    assert all(await asyncio.gather(*(one for one in waiting if one not in done)))
    assert passwords.most <= 2
    logins.close()


async def test_tries_at_a_time_are_no_more_than_tries_one_after_the_other() -> None:
    passwords = SlowPasswords(ana="one")
    logins = Logins(passwords, max_failures=3)
    waiting = [asyncio.create_task(logins.is_right("bad", "ana", f"guess {number}")) for number in range(100)]
    await settle()
    assert sum(one.done() for one in waiting) == 97
    passwords.let_go.set()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert sum(one is False for one in found) == 3
    assert passwords.checks == 3
    logins.close()


async def test_who_leaves_gives_the_place_in_line_to_others() -> None:
    passwords = SlowPasswords(ana="one")
    logins = Logins(passwords)
    waiting = [asyncio.create_task(logins.is_right(f"{n}", f"user{n}", "x")) for n in range(MAX_WAITING)]
    await asyncio.sleep(0)
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)
    await settle()
    task = asyncio.create_task(logins.is_right("a", "ana", "one"))
    await asyncio.sleep(0)
    passwords.let_go.set()
    assert await task
    assert passwords.checks <= 3  # two were under way
    logins.close()


async def test_a_check_that_cannot_be_made_counts_as_no_failure() -> None:
    class Broken(DictPasswords):
        is_broken = True

        def check(self, user: str, password: str) -> bool:
            if self.is_broken:
                raise UnavailableError("the directory does not answer")
            return super().check(user, password)

    passwords = Broken(ana="one")
    logins = Logins(passwords, max_failures=3)
    for _ in range(10):
        with pytest.raises(UnavailableError):
            await logins.is_right("a", "ana", "one")
    passwords.is_broken = False
    assert await logins.is_right("a", "ana", "one")
    logins.close()
