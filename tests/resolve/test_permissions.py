"""Who may read what, by scopes and by grants; and who calls, as API Gateway reports it."""

from __future__ import annotations

from typing import Any

import pytest

from coldstream.errors import NotPermittedError, UnavailableError
from coldstream.manifest.access import Grant
from coldstream.resolve.caller import Authentication, Caller
from coldstream.resolve.permissions import GRANTS_KEPT_S, Permissions
from coldstream.store.memory.table import MemoryTable

READER = "arn:aws:sts::123456789012:assumed-role/reader/session"
ROLE = "arn:aws:iam::123456789012:role/reader"


def by(**authorizer: Any) -> Caller:
    return Caller.of({"requestContext": {"authorizer": authorizer}})


def bearer(**claims: Any) -> Caller:
    return by(jwt={"claims": {"sub": "alice", "iss": "https://issuer.example", **claims}, "scopes": None})


def signer(arn: str | None = READER) -> Caller:
    return by(iam={"userArn": arn, "accountId": "123456789012"})


def may(permissions: Permissions, caller: Caller, vhost: str = "/", name: str = "orders") -> bool:
    try:
        permissions.check(caller, vhost, name)
    except NotPermittedError:
        return False
    return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_authorizer_says_who_the_caller_is() -> None:
    caller = bearer(scope="a b")
    assert (caller.authentication, caller.principal, caller.issuer) == (
        Authentication.TOKEN,
        "alice",
        "https://issuer.example",
    )
    assert (signer().authentication, signer().principal) == (Authentication.IAM, READER)
    assert Caller.of({}) == Caller.of({"requestContext": {"authorizer": None}}) == Caller(Authentication.NONE)


@pytest.mark.parametrize(
    ("claim", "words"),
    [("a b", ["a", "b"]), ("[a b]", ["a", "b"]), ("[a]", ["a"]), ("[]", []), ("", []), (" a  b ", ["a", "b"])],
)
def test_a_claim_is_words_or_a_list_as_api_gateway_writes_it(claim: str, words: list[str]) -> None:
    assert bearer(scp=claim).words("scp") == words
    assert bearer().words("scp") == []
    assert bearer(scp=["a"]).words("scp") == []


@pytest.mark.parametrize("broken", [None, {}, {"claims": None}, {"claims": {"scope": None}}])
def test_a_token_without_claims_may_read_nothing(broken: Any) -> None:
    assert not may(Permissions(), by(jwt=broken))


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        ("coldstream.read:%2F/orders", True),
        ("openid coldstream.read:%2F/o* profile", True),
        ("[coldstream.read:%2F/payments coldstream.read:%2F/orders]", True),
        ("coldstream.read:%2F/payments", False),
        ("coldstream.read:other/orders", False),
        ("coldstream.read:/orders", False),
        ("coldstream.read", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_a_token_may_read_what_its_scopes_say(scope: str, *, expected: bool) -> None:
    assert may(Permissions(), bearer(scope=scope)) is expected
    assert may(Permissions(scope_claim="scp"), bearer(scp=scope)) is expected
    assert not may(Permissions(scope_claim="scp"), bearer(scope="coldstream.read:*/*"))
    assert may(Permissions(scope_claim=None), bearer(scope=scope))


def test_a_principal_may_read_what_the_table_grants_it() -> None:
    table = MemoryTable()
    permissions = Permissions(table)
    assert not may(permissions, signer())
    table.put_grant(Grant(ROLE, "%2F/o*"))
    table.put_grant(Grant("arn:aws:iam::123456789012:user/*", "*/*"))
    permissions = Permissions(table)
    assert may(permissions, signer())
    assert not may(permissions, signer(), name="payments")
    assert may(permissions, signer("arn:aws:iam::123456789012:user/alice"), name="payments")
    assert not may(permissions, signer("arn:aws:iam::210987654321:user/alice"))
    assert not may(permissions, signer(None))
    assert not may(permissions, Caller(Authentication.NONE))


def test_a_token_gets_nothing_from_grants_nor_a_principal_from_scopes() -> None:
    table = MemoryTable()
    table.put_grant(Grant("*", "*/*"))
    assert not may(Permissions(table), bearer(sub=ROLE))
    iam = by(iam={"userArn": READER, "scope": "coldstream.read:*/*"})
    assert not may(Permissions(MemoryTable()), iam)


def test_without_grants_every_principal_that_iam_admits_may_read_everything() -> None:
    assert may(Permissions(), signer())
    assert may(Permissions(), Caller(Authentication.NONE))
    assert Permissions().of(signer()) is None


def test_grants_are_read_once_in_a_while_and_taken_back_within_that() -> None:
    table, clock = MemoryTable(), Clock()
    permissions = Permissions(table, clock=clock)
    grant = Grant(ROLE, "%2F/orders")
    table.put_grant(grant)
    assert may(permissions, signer())
    assert table.delete_grant(grant)
    assert may(permissions, signer())
    assert table.requests["Query"] == 1
    clock.now += GRANTS_KEPT_S
    assert not may(permissions, signer())
    assert table.requests["Query"] == 2


def test_grants_that_cannot_be_read_permit_nothing() -> None:
    class Down(MemoryTable):
        def grants(self) -> tuple[Grant, ...]:
            raise UnavailableError("no answer")

    clock = Clock()
    permissions = Permissions(Down(), clock=clock)
    with pytest.raises(UnavailableError):
        permissions.check(signer(), "/", "orders")
