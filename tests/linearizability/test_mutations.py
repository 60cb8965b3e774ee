"""Of each guard that is taken away, some play ends with what the checker refuses: plays and checker are no show."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.linearizability.mutations import MUTATIONS
from tests.linearizability.play import Play
from tests.linearizability.porcupine import REMEDY, Checker, find_checker
from tests.linearizability.recorder import PlayError
from tests.support.fixtures import do_without


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    if find_checker() is None:
        do_without("the checker of histories", REMEDY)
    with Checker() as running:
        yield running


@pytest.fixture(autouse=True)
def _silent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)


def is_legal(checker: Checker, seed: int) -> bool:
    try:
        histories = Play(seed).run()
    except PlayError:
        return False
    return all(checker.check(history).is_legal for history in histories)


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_lacks_a_guard_is_refused(checker: Checker, name: str) -> None:
    mutation, seed = MUTATIONS[name]
    assert is_legal(checker, seed)
    with mutation():
        assert not is_legal(checker, seed)
