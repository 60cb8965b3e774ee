"""Sessions: a login lasts for a while, and nobody makes one up."""

from __future__ import annotations

from hashlib import sha256

import pytest

from coldstream.console.sessions import Sessions
from tests.support.serving import tokens

KNOWN = tokens("one app r orders", "two ops rw *")
KEY = b"k" * 32
NOW = 1_000_000.0


def begun(token: str = "two", key: bytes = KEY) -> str:
    value = Sessions(KNOWN, key, 3600).begin(token, NOW)
    assert value is not None
    return value


def test_a_token_begins_a_session_of_its_holder() -> None:
    found = Sessions(KNOWN, KEY, 3600).holder_of(begun(), NOW + 1)
    assert found is not None
    assert found.name == "token ops"
    assert found == KNOWN.holder_of_token("two")


@pytest.mark.parametrize("token", ["", "three", "Two", sha256(b"two").hexdigest(), "\ud800"])
def test_what_is_no_token_begins_none(token: str) -> None:
    assert Sessions(KNOWN, KEY).begin(token, NOW) is None


def test_a_session_ends_with_its_time_its_token_and_the_key() -> None:
    value = begun()
    assert Sessions(KNOWN, KEY, 3600).holder_of(value, NOW + 3599.9) is not None
    assert Sessions(KNOWN, KEY, 3600).holder_of(value, NOW + 3600) is None
    assert Sessions(tokens("one app r orders"), KEY, 3600).holder_of(value, NOW) is None
    assert Sessions(KNOWN, b"x" * 32, 3600).holder_of(value, NOW) is None
    assert Sessions(KNOWN, None, 3600).holder_of(value, NOW) is None


def test_processes_that_share_the_key_take_each_others_sessions() -> None:
    assert Sessions(KNOWN, KEY, 60).holder_of(begun(), NOW) is not None


def test_the_value_has_neither_token_nor_digest() -> None:
    digest = sha256(b"two").hexdigest()
    assert "two" not in begun()
    assert digest[:16] not in begun()


def test_no_change_of_any_character_is_taken() -> None:
    value = begun()
    sessions = Sessions(KNOWN, KEY, 3600)
    for at in range(len(value)):
        for other in "0a.v":
            changed = value[:at] + other + value[at + 1 :]
            assert changed == value or sessions.holder_of(changed, NOW) is None


def test_nobody_takes_the_session_of_another_token() -> None:
    one, two = begun("one").split("."), begun("two").split(".")
    sessions = Sessions(KNOWN, KEY, 3600)
    mixed = [".".join([*one[:2], two[2], one[3]]), ".".join([*two[:3], one[3]])]
    assert [sessions.holder_of(value, NOW) for value in mixed] == [None, None]


@pytest.mark.parametrize("value", [None, "", "v1", "v1.9.x.y", "v2.99999999.0.0", "v1.²." + "0" * 32 + "." + "0" * 64])
def test_what_is_no_session_is_none(value: str | None) -> None:
    assert Sessions(KNOWN, KEY).holder_of(value, NOW) is None
