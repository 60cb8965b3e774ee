"""Where a server may listen."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldstream.errors import InvalidSettingError
from coldstream.web.listening import Listening
from tests.support.serving import tokens


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_only_tokens_let_others_reach_the_server(host: str) -> None:
    with pytest.raises(InvalidSettingError):
        Listening(host).check(None)
    Listening(host).check(tokens("one app r *"))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.1.2.3"])
def test_a_loopback_address_needs_no_tokens(host: str) -> None:
    Listening(host).check(None)


@pytest.mark.parametrize("half", [{"certificate": Path("c")}, {"private_key": Path("k")}], ids=str)
def test_a_certificate_without_its_key_is_refused(half: dict[str, Path]) -> None:
    with pytest.raises(InvalidSettingError):
        Listening(**half)  # type: ignore[arg-type]  # mypy takes the dict for all fields
