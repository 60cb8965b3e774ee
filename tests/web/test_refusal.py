"""What a store's failure is to whoever asked over a network: to be tried again, on every server and in every answer."""

from __future__ import annotations

from http import HTTPStatus

import pytest

from coldstream.console.page_errors import error_of
from coldstream.errors import (
    ColdstreamError,
    LostRaceError,
    OutcomeUnknownError,
    ReplacedError,
    UnavailableError,
)
from coldstream.gateway.alone.refusals import code_of
from coldstream.gateway.frames.keys import Code
from coldstream.resolve.problem import problem_of
from coldstream.serve.refusal import STREAM_ERRORS
from coldstream.web.refusal import refusal_of

_WHAT = "Query of table-7: no answer"
FAILURES = (UnavailableError(_WHAT), OutcomeUnknownError(_WHAT), LostRaceError(_WHAT), ReplacedError("GET", "a-key"))


@pytest.mark.parametrize("err", FAILURES, ids=lambda err: type(err).__name__)
def test_what_may_do_better_later_is_no_failure_of_the_server(err: ColdstreamError) -> None:
    assert problem_of(err).status == HTTPStatus.SERVICE_UNAVAILABLE
    for kinds in ((), STREAM_ERRORS):
        answer = refusal_of(err, kinds).response
        assert (answer.status_code, answer.headers["Retry-After"]) == (HTTPStatus.SERVICE_UNAVAILABLE, "1")
        assert b"table-7" not in answer.body
    assert code_of(err) is Code.STREAM_NOT_AVAILABLE


@pytest.mark.parametrize("err", FAILURES[:2], ids=lambda err: type(err).__name__)
def test_the_console_tells_the_place_to_those_who_see_all_of_the_archive(err: ColdstreamError) -> None:
    whole, public = error_of(err, shows_all=True), error_of(err, shows_all=False)
    assert whole.status is public.status is HTTPStatus.SERVICE_UNAVAILABLE
    assert whole.headers["Retry-After"]
    assert (whole.detail, public.detail) == (_WHAT, "")
    assert whole.todo
