"""All inputs that are kept, and all seeds: only a parser's own errors, bounded memory, and bounded work.

Work is counted in lines of Python that run, which no busy machine changes.
"""

from __future__ import annotations

import sys
import tracemalloc
from types import FrameType
from typing import Any

import pytest

from coldstream.errors import BadLengthError, BadMagicError
from tests.fuzz.catalogue import TARGETS
from tests.fuzz.corpora import CORPUS, REGRESSIONS, inputs_of, kept
from tests.fuzz.fuzz_target import SOURCE, BrokenPromiseError, FuzzTarget
from tests.fuzz.planted import PLANTED


@pytest.fixture(params=TARGETS.values(), ids=list(TARGETS))
def target(request: pytest.FixtureRequest) -> FuzzTarget:
    return request.param


def peak_bytes(target: FuzzTarget, data: bytes) -> int:
    target.takes(data)  # what is kept for the next call, such as a compiled pattern, is no input's
    tracemalloc.start()
    try:
        target.takes(data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def lines_run(target: FuzzTarget, data: bytes) -> int:
    lines = 0

    def local(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal lines
        lines += 1
        return local

    target.takes(data)
    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: local)
    try:
        target.takes(data)
    finally:
        sys.settrace(before)
    return lines


def test_every_input_ends_well_within_its_memory(target):
    for data in inputs_of(target):
        most = target.memory_bytes + target.memory_factor * len(data)
        # What threads of other tests' servers allocate meanwhile counts, too, and is not there each time.
        assert any(peak_bytes(target, data) <= most for _ in range(5)), data


@pytest.mark.slow
def test_every_input_ends_well_within_its_work(target):
    for data in inputs_of(target):
        assert lines_run(target, data) <= target.lines + target.lines_a_byte * len(data), data


def test_seeds_reach_the_end_of_a_parser(target):
    assert sum(map(target.takes, target.seeds())) >= 2


def test_what_is_kept_is_of_a_target_and_small():
    files = [*CORPUS.glob("*.txt"), *REGRESSIONS.glob("*.txt")]
    assert {path.stem for path in files} <= set(TARGETS)
    for name, target in TARGETS.items():
        assert all(len(data) <= target.max_bytes for data in kept(CORPUS, name))
    assert sum(path.stat().st_size for path in files) < 1_500_000


def test_an_error_that_is_not_the_parsers_own_comes_out():
    with pytest.raises(ZeroDivisionError):
        PLANTED.takes(b"cold!")
    assert PLANTED.takes(b"col..")
    assert not PLANTED.takes(b"cold"[:3])


def test_an_error_that_does_not_name_the_place_comes_out():
    def parse(data: bytes) -> None:
        raise BadMagicError("another file" if data else SOURCE, -1, "magic")

    for data in (b"", b"a"):
        with pytest.raises(BrokenPromiseError):
            FuzzTarget("one", parse, list, (BadMagicError, BadLengthError)).takes(data)


def test_memory_and_work_are_measured():
    def parse(data: bytes) -> None:
        held = {}
        for number in range(len(data)):
            held[number] = bytes(10_000)

    found = FuzzTarget("one", parse, list, ())
    assert peak_bytes(found, bytes(100)) > 1_000_000
    assert 200 <= lines_run(found, bytes(100)) < 300
