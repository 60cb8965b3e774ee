"""Histories of plays, judged by Porcupine: none is refused, and all that may go wrong has gone wrong in them.

`make prove` plays more of them, COLDSTREAM_STREAM_HISTORIES, from COLDSTREAM_FIRST_SEED on. Play a seed again with

    python -m tests.linearizability.again 4711
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.linearizability.play import Play
from tests.linearizability.porcupine import REMEDY, Checker, find_checker
from tests.support.fixtures import do_without

HISTORIES = int(os.environ.get("COLDSTREAM_STREAM_HISTORIES", "150"))
FIRST_SEED = int(os.environ.get("COLDSTREAM_FIRST_SEED", "0"))

MENDED_SEEDS = (78, 998)
"""Of plays that went wrong once.

78: reading ahead evicted the block that was about to be read. 998: a snapshot began after its end, since the stream was
trimmed while it was opened.
"""

HAPPENS = (
    "kill",
    "freeze",
    "outage",
    "slow",
    "refused",
    "lost request",
    "lost answer of PUT",
    "lost answer of PUT, which came late",
    "lost answer of transaction",
    "lost answer of transaction, which came late",
    "PUT sent twice",
    "request of a dead process arrived",
    "listing by pages",
    "seal of another's log",
    "seal of the own log",
    "went on in another log",
    "batch acknowledged by a seal",
    "batch recovered from a log",
    "objects of a log deleted",
    "open",
    "open unknown",
    "append acknowledged",
    "append unknown",
    "append duplicate",
    "append refused",
    "append refused: another opened it",
    "append: another tail than expected",
    "published again",
    "zombie refused",
    "read",
    "snapshot",
    "trim",
)
"""What each run of some hundred histories has to have met: otherwise it would show less than it says."""


@pytest.fixture
def checker(tmp_path: Path) -> Iterator[Checker]:
    if find_checker() is None:
        do_without("the checker of histories", REMEDY)
    with Checker(pages=tmp_path) as running:
        yield running


@pytest.mark.slow
def test_no_history_is_refused(checker: Checker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")  # what is not archived at once says so, thousands of times
    counts: Counter[str] = Counter()
    began, histories, operations, seed = time.monotonic(), 0, 0, FIRST_SEED
    while histories < HISTORIES:
        play = Play(seed)
        try:
            played = play.run()
        except BaseException as err:
            err.add_note(f"seed {seed}")
            raise
        for history in played:
            verdict = checker.check(history)
            assert verdict.is_legal, f"{history.name} is {verdict.verdict}: {verdict.page}"
            histories += 1
            operations += len(history.calls)
        counts.update(play.counts)
        seed += 1
    happened = ", ".join(f"{name} {counts[name]}" for name in HAPPENS)
    print(  # noqa: T201  for `make prove`
        f"{histories} histories of {operations} operations, seeds {FIRST_SEED} to {seed - 1}, none refused, "
        f"in {time.monotonic() - began:.0f} s: {happened}"
    )
    if HISTORIES >= 100:
        assert not [name for name in HAPPENS if not counts[name]]


@pytest.mark.parametrize("seed", MENDED_SEEDS)
def test_what_was_mended_stays_mended(checker: Checker, seed: int) -> None:
    assert all(checker.check(history).is_legal for history in Play(seed).run())


def test_a_seed_gives_the_same_histories_again() -> None:
    first, second = ([history.to_json() for history in Play(7).run()] for _ in range(2))
    assert first == second
