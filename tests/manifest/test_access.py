"""Patterns of streams, and grants."""

from __future__ import annotations

import random
import re
import time
from urllib.parse import quote

import pytest

from coldstream.errors import InvalidInputError
from coldstream.manifest.access import (
    Grant,
    StreamPattern,
    Wildcard,
    names_of_principal,
    patterns_in,
    without_path,
)

READER = "arn:aws:iam::123456789012:role/reader"


@pytest.mark.parametrize(
    ("pattern", "vhost", "name", "expected"),
    [
        ("%2F/orders", "/", "orders", True),
        ("%2f/orders", "/", "orders", True),
        ("%2F/orders", "/", "orders2", False),
        ("%2F/orders", "/", "my-orders", False),
        ("%2F/orders", "", "orders", False),
        ("%2F/orders*", "/", "orders", True),
        ("%2F/orders*", "/", "orders.eu/x", True),
        ("%2F/orders*", "/", "order", False),
        ("%2F/*orders", "/", "all-orders", True),
        ("%2F/o*s", "/", "os", True),
        ("%2F/o*s", "/", "o", False),
        ("%2F/a*b*c", "/", "aXbYc", True),
        ("%2F/a*b*c", "/", "acb", False),
        ("%2F/ab*ba", "/", "aba", False),
        ("%2F/**", "/", "anything", True),
        ("*/*", "tenant", "orders", True),
        ("tenant-*/orders", "tenant-1", "orders", True),
        ("tenant-*/orders", "tenant", "orders", False),
        ("tenant/*", "Tenant", "orders", False),
        ("%2F/%2A", "/", "*", True),
        ("%2F/%2A", "/", "x", False),
        ("%2F/a.c", "/", "abc", False),
        ("%2F/[a-z]", "/", "b", False),
        ("%2F/caf%C3%A9", "/", "café", True),
        ("%2F/café", "/", "café", True),
        ("%2F/100%25", "/", "100%", True),
        ("%2F/a%20b", "/", "a b", True),
        ("%2F/a+b", "/", "a+b", True),
        ("%2F/a+b", "/", "a b", False),
        ("%2F/%252F", "/", "%2F", True),
        ("%2F/*%0A*", "/", "a\nb", True),
    ],
)
def test_a_pattern_is_of_names_decoded_and_whole(pattern: str, vhost: str, name: str, *, expected: bool) -> None:
    assert StreamPattern.from_text(pattern).matches(vhost, name) is expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "orders",
        "/orders",
        "%2F/",
        "//",
        "%2F/orders/key",
        "%2F/a b",
        "%2F/%",
        "%2F/%2",
        "%2F/%zz",
        "%2F/%FF",
        "%2F/\udc80",
    ],
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="pattern"):
        StreamPattern.from_text(text)
    assert patterns_in([f"coldstream.read:{text}"]) == ()


def test_every_name_has_a_pattern_of_its_own() -> None:
    rng = random.Random(1)
    names = ["*", "%", "/", "%2A", "a*b", " ", "\n", "名前", "a/b", "+"]
    names += ["".join(rng.choices("*%/aA2F \u00e9", k=rng.randrange(1, 6))) for _ in range(200)]
    for vhost, name in zip(names, reversed(names), strict=True):
        pattern = StreamPattern.from_text(f"{quote(vhost, safe='')}/{quote(name, safe='')}")
        assert [other for other in names if pattern.matches(vhost, other)] == [name] * names.count(name)


def test_wildcards_match_as_a_regular_expression_does() -> None:
    rng = random.Random(2)
    for _ in range(5000):
        pattern = "".join(rng.choices("ab*", k=rng.randrange(0, 7)))
        text = "".join(rng.choices("ab", k=rng.randrange(0, 8)))
        expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None
        assert Wildcard(tuple(pattern.split("*"))).matches(text) is expected, (pattern, text)


def test_a_hostile_pattern_takes_no_time() -> None:
    began = time.process_time()
    assert not Wildcard(tuple(("a*" * 500 + "b").split("*"))).matches("a" * 255)
    assert time.process_time() - began < 1


def test_only_scopes_of_ours_that_mean_something_count() -> None:
    scopes = [
        "openid",
        "coldstream.read",
        "coldstream.read:",
        "coldstream.write:*/*",
        "read:*/*",
        "COLDSTREAM.READ:*/*",
    ]
    assert patterns_in(scopes) == ()
    (pattern,) = patterns_in([*scopes, "coldstream.read:%2F/orders"])
    assert pattern == StreamPattern.from_text("%2F/orders")


@pytest.mark.parametrize(
    ("principal", "arn", "expected"),
    [
        (READER, "arn:aws:sts::123456789012:assumed-role/reader/session-1", True),
        (READER, READER, True),
        ("arn:aws:sts::123456789012:assumed-role/reader/*", "arn:aws:sts::123456789012:assumed-role/reader/me", True),
        (
            "arn:aws:sts::123456789012:assumed-role/reader/me",
            "arn:aws:sts::123456789012:assumed-role/reader/you",
            False,
        ),
        (READER, "arn:aws:sts::210987654321:assumed-role/reader/s", False),
        (READER, "arn:aws:sts::123456789012:assumed-role/reader2/s", False),
        (READER, "arn:aws:sts::123456789012:federated-user/reader", False),
        ("arn:aws:iam::123456789012:user/*", "arn:aws:iam::123456789012:user/team/alice", True),
        ("arn:aws:iam::123456789012:*", "arn:aws-cn:iam::123456789012:root", False),
        ("*", "arn:aws:iam::123456789012:root", True),
    ],
)
def test_a_grant_is_for_a_principal_by_its_arn_or_its_roles(principal: str, arn: str, *, expected: bool) -> None:
    assert Grant(principal, "*/*").is_for(names_of_principal(arn)) is expected


def test_a_grant_is_for_nobody_without_a_name() -> None:
    assert not Grant("*", "*/*").is_for(())


def test_a_roles_path_is_left_out_as_a_session_does_not_tell_it() -> None:
    assert without_path("arn:aws:iam::123456789012:role/team/a/reader") == READER
    assert without_path(READER) == READER
    assert without_path("arn:aws:iam::123456789012:user/team/alice") == "arn:aws:iam::123456789012:user/team/alice"


@pytest.mark.parametrize("principal", ["", "two words", "ü", "a\n", "x" * 1000])
def test_what_is_no_principal_is_refused(principal: str) -> None:
    with pytest.raises(InvalidInputError):
        Grant(principal, "*/*")
    with pytest.raises(InvalidInputError):
        Grant("arn", "orders")
