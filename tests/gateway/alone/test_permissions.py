"""Permissions by patterns of vhosts and streams."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldstream.errors import InvalidSettingError
from coldstream.gateway.alone import watched_file
from coldstream.gateway.alone.permission_file import PermissionFile
from coldstream.gateway.alone.permissions import ALL, READ_ALL, StreamPermissions
from coldstream.web.access_tokens import Right

RULES = StreamPermissions.parse(
    ["# people", "", "ana / orders-* rw", "ana shop* 'with blank*' r", "'bob smith' * * r", "* / public w"]
)


@pytest.mark.parametrize(
    ("right", "user", "vhost", "stream", "may"),
    [
        (Right.READ, "ana", "/", "orders-1", True),
        (Right.WRITE, "ana", "/", "orders-1", True),
        (Right.READ, "ana", "/", "orders", False),
        (Right.READ, "ana", "other", "orders-1", False),
        (Right.READ, "ana", "shop-7", "with blank 1", True),
        (Right.WRITE, "ana", "shop-7", "with blank 1", False),
        (Right.READ, "bob smith", "any", "any", True),
        (Right.WRITE, "bob smith", "any", "any", False),
        (Right.WRITE, "whoever", "/", "public", True),
        (Right.READ, "whoever", "/", "public", False),
        (Right.READ, "ANA", "/", "orders-1", False),
    ],
)
def test_a_rule_of_the_user_has_to_match_vhost_and_stream(
    right: Right, user: str, vhost: str, stream: str, *, may: bool
) -> None:
    assert RULES.may(right, user, vhost, stream) is may


def test_any_right_in_a_vhost_opens_it() -> None:
    assert RULES.may_open("ana", "shop-1")
    assert not RULES.may_open("ana", "other")
    assert RULES.may_open("whoever", "/")


def test_without_a_file_everybody_may_read() -> None:
    assert READ_ALL.may(Right.READ, "x", "v", "s")
    assert not READ_ALL.may(Right.WRITE, "x", "v", "s")
    assert ALL.may(Right.WRITE, "x", "v", "s")


@pytest.mark.parametrize("line", ["ana", "ana / orders", "ana / orders x", "ana / orders rw more", "ana / 'orders rw"])
def test_a_malformed_line_is_named(line: str) -> None:
    with pytest.raises(InvalidSettingError, match="line 2"):
        StreamPermissions.parse(["ana / orders r", line])


def test_a_file_without_rules_that_all_may_write_or_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rules"
    with pytest.raises(InvalidSettingError, match="permissions_file"):
        PermissionFile(path)
    path.write_text("# nobody\n")
    with pytest.raises(InvalidSettingError, match="no rule"):
        PermissionFile(path)
    path.write_text("* * * r\n")
    assert PermissionFile(path).current == READ_ALL
    path.chmod(0o666)
    with pytest.raises(InvalidSettingError, match="chmod"):
        PermissionFile(path)


def test_a_changed_file_counts_and_one_that_cannot_be_read_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_file, "LOOK_EVERY_S", 0.0)
    path = tmp_path / "rules"
    path.write_text("ana / orders rw\n")
    found = PermissionFile(path)
    first = found.current
    found.look()
    assert found.current is first
    path.write_text("ana / orders r\n")
    found.look()
    second = found.current
    assert not second.may(Right.WRITE, "ana", "/", "orders")
    for broken in ("ana / ord", "", "ana / 'orders r\n"):
        path.write_text(broken)
        found.look()
        assert found.current is second
    path.unlink()
    found.look()
    assert found.current is second
    path.write_text("ana / orders rw\n")
    found.look()
    assert found.current.may(Right.WRITE, "ana", "/", "orders")
