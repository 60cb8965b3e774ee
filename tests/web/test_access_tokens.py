"""Files of tokens, and what a token may do."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldstream.errors import InvalidSettingError
from coldstream.web.access_tokens import AccessTokens, Right
from tests.support.serving import tokens


def test_a_token_may_do_what_its_lines_say_and_no_more() -> None:
    known = tokens("one app r orders/*", "one app rw notes", "two other w *")
    caller = known.caller_of("Bearer one")
    assert caller is not None
    assert caller.name == "token app"
    assert caller.may(Right.READ, "orders/1")
    assert not caller.may(Right.WRITE, "orders/1")
    assert caller.may(Right.WRITE, "notes")
    assert not caller.may(Right.READ, "other")
    for unknown in (None, "", "Bearer", "Bearer three", "Basic one", "Bearer one two", "Bearer one,", "bEARER one"):
        assert known.caller_of(unknown) is None


def test_a_file_of_tokens_that_everybody_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"{'0' * 64} app r *\n")
    path.chmod(0o646)
    with pytest.raises(InvalidSettingError, match="everybody"):
        AccessTokens.read(path)
    path.chmod(0o640)
    assert len(AccessTokens.read(path).grants) == 1


def test_a_line_that_is_no_grant_is_named_and_not_shown() -> None:
    with pytest.raises(InvalidSettingError, match="line 2") as refused:
        AccessTokens.parse(["# who may do what", "secret app rw *"])
    assert "secret" not in str(refused.value)
