"""The checker refuses what a direct stream must never do, and lets pass what it may do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.linearizability.history import History, batch_digest, stream_digest
from tests.linearizability.porcupine import REMEDY, Checker, find_checker
from tests.support.fixtures import do_without

A, B, C = (batch_digest([name]) for name in (b"a", b"b", b"c"))


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    if find_checker() is None:
        do_without("the checker of histories", REMEDY)
    with Checker() as running:
        yield running


class Story:
    """A history told line by line. Each line begins after the one before has ended, or where `at` says."""

    def __init__(self, *, gaps: bool = False) -> None:
        self.history = History("story", gaps=gaps)
        self._now = 0

    def _tell(self, kind: str, handle: int, outcome: str, at: tuple[int, int] | None, **facts) -> Story:
        begins, ends = at or (self._now + 1, self._now + 2)
        self._now = max(self._now, ends)
        told = {name: fact for name, fact in facts.items() if fact is not None}
        call = self.history.call(client=handle, kind=kind, handle=handle, at=begins, **told)
        if outcome != "unknown":
            call.returns(at=ends, outcome=outcome)
        return self

    def open(self, handle: int, epoch: int = 0, outcome: str = "ok", at: tuple[int, int] | None = None) -> Story:
        return self._tell("open", handle, outcome, at, epoch=epoch or handle)

    def append(  # noqa: PLR0917  as it reads
        self,
        handle: int,
        batch: str,
        base: int = 0,
        outcome: str = "ok",
        at: tuple[int, int] | None = None,
        epoch: int = 0,
        **facts,
    ) -> Story:
        return self._tell(
            "append", handle, outcome, at, batch=batch, messages=1, base=base, epoch=epoch or handle, **facts
        )

    def read(self, handle: int, *batches: str, at: tuple[int, int] | None = None, stale: bool = False) -> Story:
        digest = stream_digest(list(enumerate(batches)), gaps=self.history.gaps)
        return self._tell("read", handle, "ok", at, tail=len(batches), digest=digest, stale=stale)

    def tail(self, handle: int, tail: int, at: tuple[int, int] | None = None) -> Story:
        return self._tell("tail", handle, "ok", at, tail=tail)

    def seal(self, handle: int, outcome: str = "ok") -> Story:
        return self._tell("seal", handle, outcome, None)


LEGAL: dict[str, Callable[[], Story]] = {
    "nothing at all": Story,
    "appends in order": lambda: Story().open(1).append(1, A, 0).append(1, B, 1).read(0, A, B).tail(1, 2),
    "a takeover": lambda: Story().open(1).append(1, A, 0).open(2).append(2, B, 1).read(0, A, B),
    "an unknown append that appears": lambda: Story().open(1).append(1, A, outcome="unknown").read(0, A),
    "an unknown append that does not": lambda: Story().open(1).append(1, A, outcome="unknown").read(0),
    "an unknown append that appears late": lambda: (
        Story().open(1).append(1, A, outcome="unknown").read(0).open(2).append(2, B, 1).read(0, A, B)
    ),
    "acknowledged while the next one opens": lambda: (
        Story().open(1).open(2, at=(10, 20)).append(1, A, 0, at=(15, 30)).read(0, A)
    ),
    "a refused append": lambda: Story().open(1).open(2).append(1, A, outcome="refused").read(2),
    "an unknown opening that fences": lambda: (
        Story().open(1).open(2, outcome="unknown").append(1, A, outcome="refused")
    ),
    "an unknown opening that never was": lambda: Story().open(1).open(2, outcome="unknown").append(1, A, 0),
    "a fenced handle reads what it knew": lambda: (
        Story().open(1).append(1, A, 0).open(2).append(2, B, 1).read(1, A).tail(1, 1)
    ),
    "a reader of earlier states": lambda: Story().open(1).append(1, A, 0).append(1, B, 1).read(0, A, stale=True),
    "a handle that opened itself again": lambda: Story().open(1).append(1, A, 0, epoch=3).open(4).append(4, B, 1),
    "expected offsets": lambda: Story().open(1).append(1, A, 0, expect=0).append(1, B, outcome="refused", expect=0),
    "sealed": lambda: Story().open(1).append(1, A, 0).seal(1).append(1, B, outcome="refused").read(0, A),
    "published again": lambda: (
        Story()
        .open(1)
        .append(1, A, 0, publisher=0, publishing=5)
        .open(2)
        .append(2, A, outcome="duplicate", publisher=0, publishing=5)
        .append(2, B, 1, publisher=0, publishing=6)
    ),
    "gaps where there may be some": lambda: Story(gaps=True).open(1).append(1, A, 0).append(1, B, 7).tail(1, 9),
}

ILLEGAL: dict[str, Callable[[], Story]] = {
    "an acknowledged append is lost": lambda: Story().open(1).append(1, A, 0).open(2).read(2),
    "an acknowledged append is lost under a later one": lambda: (
        Story().open(1).append(1, A, 0).open(2).append(2, B, 0).read(0, B)
    ),
    "an append is doubled": lambda: Story().open(1).append(1, A, 0).read(0, A, A),
    "an unknown append appears twice": lambda: Story().open(1).append(1, A, outcome="unknown").read(0, A, A),
    "a refused append appears": lambda: Story().open(1).open(2).append(1, A, outcome="refused").read(0, A),
    "an append appears from nowhere": lambda: Story().open(1).append(1, A, 0).read(0, A, B),
    "a stale tail after an acknowledged append": lambda: Story().open(1).append(1, A, 0).tail(1, 0),
    "a stale read after an acknowledged append": lambda: Story().open(1).append(1, A, 0).read(0),
    "two at one offset": lambda: Story().open(1).append(1, A, 0).append(1, B, 0),
    "a hole": lambda: Story().open(1).append(1, A, 0).append(1, B, 2),
    "out of order": lambda: Story().open(1).append(1, A, 0).append(1, B, 1).read(0, B, A),
    "a batch before one that came first": lambda: Story().open(1).append(1, A, 1).append(1, B, 0),
    "a read that goes back": lambda: Story().open(1).append(1, A, outcome="unknown").read(0, A).read(0),
    "an unknown append after the next opening": lambda: (
        Story().open(1).append(1, A, outcome="unknown").open(2).append(2, B, 0).read(0, B, A)
    ),
    "a fenced handle appends": lambda: Story().open(1).open(2).append(1, A, 0),
    "a fenced handle takes the stream back": lambda: Story().open(1).open(2).append(1, A, 0, epoch=3),
    "a fenced handle reads what came after": lambda: Story().open(1).open(2).append(2, A, 0).read(1, A),
    "a fenced handle reads what never was": lambda: Story().open(1).append(1, A, 0).open(2).read(1, B),
    "an epoch that was given before": lambda: Story().open(1).open(2, epoch=1),
    "another offset than expected": lambda: Story().open(1).append(1, A, 0).append(1, B, 1, expect=0),
    "an append after the seal": lambda: Story().open(1).seal(1).append(1, A, 0),
    "an opening after the seal": lambda: Story().open(1).seal(1).open(2),
    "published twice": lambda: (
        Story().open(1).append(1, A, 0, publisher=0, publishing=5).open(2).append(2, A, 1, publisher=0, publishing=5)
    ),
    "taken for published": lambda: Story().open(1).append(1, A, outcome="duplicate", publisher=0, publishing=5),
    "a lost append where gaps may be": lambda: Story(gaps=True).open(1).append(1, A, 0).append(1, B, 5).read(0, B),
}


@pytest.mark.parametrize("name", LEGAL)
def test_what_a_stream_may_do_passes(checker: Checker, name: str) -> None:
    assert checker.check(LEGAL[name]().history).verdict == "legal"


@pytest.mark.parametrize("name", ILLEGAL)
def test_what_a_stream_must_never_do_is_refused(checker: Checker, name: str) -> None:
    assert checker.check(ILLEGAL[name]().history).verdict == "illegal"


@pytest.mark.usefixtures("checker")
def test_a_refused_history_is_drawn(tmp_path: Path) -> None:
    story = ILLEGAL["an unknown append appears twice"]()
    with Checker(pages=tmp_path) as drawing:
        verdict = drawing.check(story.history)
    assert verdict.page is not None
    assert "append by 1" in Path(verdict.page).read_text()


@pytest.mark.usefixtures("checker")
def test_a_history_without_a_verdict_in_time_is_not_legal() -> None:
    story = Story().open(1)
    for number in range(24):  # of any of these, each may or may not be there, in any order: too many to try them all
        story.append(1, batch_digest([bytes([number])]), outcome="unknown")
    story.read(0, *[batch_digest([b"another"])] * 12)
    with Checker(timeout_s=0.2) as hasty:
        verdict = hasty.check(story.history)
    assert verdict.verdict == "unknown"
    assert not verdict.is_legal


@pytest.mark.usefixtures("checker")
def test_what_is_no_history_is_an_error_and_no_verdict(capfd: pytest.CaptureFixture[str]) -> None:
    history = History("odd")
    history.call(client=1, kind="append", handle=1, at=5).returns(at=4)
    with Checker() as strict, pytest.raises(ValueError, match="odd"):
        strict.check(history)
    assert "returns before it is called" in capfd.readouterr().err
