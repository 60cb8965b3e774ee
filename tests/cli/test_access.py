"""`coldstream access` on the table of the emulated AWS."""

from __future__ import annotations

import pytest

from coldstream.store.table import DynamoTable
from tests.cli.conftest import Cli

ROLE = "arn:aws:iam::123456789012:role/analytics"


@pytest.fixture(autouse=True)
def _table(table_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLDSTREAM_TABLE", table_name)


def test_what_is_granted_is_listed_and_can_be_taken_back(cli: Cli, dynamo_table: DynamoTable) -> None:
    nothing = cli("access", "list")
    assert nothing.code == 0
    assert "nothing is granted" in nothing.err
    assert cli("access", "grant", ROLE, "%2F/orders*").out == f"{ROLE} may read %2F/orders*\n"
    cli("access", "grant", "arn:aws:iam::123456789012:user/*", "*/*")
    (grant, _) = dynamo_table.grants()
    assert (grant.principal, grant.streams) == (ROLE, "%2F/orders*")
    (first, second) = cli("access", "list", "-o", "json").json
    assert first == {"principal": ROLE, "streams": "%2F/orders*", "at": grant.at}
    assert second["streams"] == "*/*"
    assert cli("access", "list").out.splitlines()[1].split()[:2] == [ROLE, "%2F/orders*"]
    assert cli("access", "revoke", ROLE, "%2F/orders*").code == 0
    assert len(dynamo_table.grants()) == 1


def test_a_grant_that_is_not_there_cannot_be_taken_back(cli: Cli) -> None:
    done = cli("access", "revoke", ROLE, "%2F/orders*")
    assert done.code == 3
    assert "has no grant" in done.err


def test_a_roles_path_is_left_out(cli: Cli, dynamo_table: DynamoTable) -> None:
    path = "arn:aws:iam::123456789012:role/team/a/analytics"
    assert ROLE in cli("access", "grant", path, "*/*").out
    assert dynamo_table.grants()[0].principal == ROLE
    assert cli("access", "revoke", path, "*/*").code == 0


@pytest.mark.parametrize("streams", ["orders", "/orders", "%2F/a/b", "%2F/%zz"])
def test_what_is_no_pattern_says_how_one_looks(cli: Cli, dynamo_table: DynamoTable, streams: str) -> None:
    done = cli("access", "grant", ROLE, streams)
    assert done.code == 2
    assert "%" in done.err
    assert dynamo_table.grants() == ()


def test_without_a_table_the_setting_is_named(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLDSTREAM_TABLE")
    done = cli("access", "list")
    assert done.code == 2
    assert "COLDSTREAM_TABLE" in done.err


@pytest.mark.parametrize("command", [(), ("list",), ("grant",), ("revoke",)])
def test_help_says_what_there_is(cli: Cli, command: tuple[str, ...]) -> None:
    done = cli("access", *command, "--help")
    assert done.code == 0
    assert "Usage: coldstream access" in done.out
