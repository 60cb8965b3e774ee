"""Compaction that is killed at every call to a store in turn, that others get in between of, with readers meanwhile."""

from __future__ import annotations

import random
from contextlib import suppress
from itertools import count

import pytest

from coldstream.compact.options import CompactOptions
from coldstream.errors import LostRaceError, OutcomeUnknownError, UnavailableError
from coldstream.manifest.entry import Encoding, FragmentEntry
from tests.support.archive import NOW, ChunkArchive, Spec, StoredChunk
from tests.support.compacting import (
    LONG_AFTER,
    Calls,
    Inline,
    Killed,
    assert_readable,
    assert_right,
    log_of,
    options_of,
    run,
    scanned,
)


@pytest.fixture(autouse=True)
def _as_is_reproducible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything in one thread, without delays; fragments of a few points."""
    monkeypatch.setattr("coldstream.compact.run.ThreadPoolExecutor", Inline)
    monkeypatch.setattr("coldstream.store.races.FIRST_DELAY_S", 0)
    monkeypatch.setattr("coldstream.manifest.groups.STEP_BYTES", 150)


class Stream:
    """An archive in memory that is added to; `committed` are its chunks."""

    def __init__(self, *fragments: int) -> None:
        self.archive = ChunkArchive(sparse_bytes=150)
        self.archive.objects.clock = lambda: LONG_AFTER  # by which S3 judges the signatures of a sweep's deletions
        self.committed: list[StoredChunk] = []
        self.next_offset = 0
        for chunks in fragments:
            self.add(chunks)

    def add(self, chunks: int) -> None:
        self.commit(self.put(chunks))

    def put(self, chunks: int) -> FragmentEntry:
        entry = self.archive.put(self.next_offset, [Spec(1 + n % 3, self.next_offset + n) for n in range(chunks)])
        self.next_offset = entry.next_offset
        return entry

    def commit(self, entry: FragmentEntry) -> None:
        entry = self.archive.commit(entry)
        inside = (chunk for chunk in self.archive.chunks if chunk.key == entry.key)
        self.committed = sorted([*self.committed, *inside], key=lambda chunk: chunk.header.chunk_id)


def kill_at(number: int, *, is_done: bool) -> tuple[Stream, bool]:
    """Run compaction up to a call, before or after what it does; return the stream, and whether it got that far."""
    stream = Stream(3, 2, 4, 1, 2, 5, 2, 3)
    encoding = Encoding.ZSTD_SEEKABLE if number % 2 else Encoding.IDENTITY

    def on_call(called: int, _: str, done: bool) -> None:  # noqa: FBT001  as it is called
        if called > number or (called == number and done is is_done):
            raise Killed

    calls = Calls(stream.archive.table, stream.archive.objects, on_call)
    try:
        run(stream.archive, options_of(encoding), table=calls.table, objects=calls.objects)
    except Killed:
        return stream, True
    return stream, False


@pytest.mark.parametrize("is_done", [False, True])
def test_killed_at_any_call_it_leaves_an_archive_that_reads_right_and_the_next_run_finishes_it(
    *, is_done: bool
) -> None:
    for number in count(1):
        stream, is_killed = kill_at(number, is_done=is_done)
        assert_readable(stream.archive, stream.committed)
        stream.add(2)
        assert_readable(stream.archive, stream.committed)
        report = run(stream.archive, options_of())
        assert not report.failures
        assert_right(stream.archive, stream.committed)
        if not is_killed:
            break
    assert number > 10


@pytest.mark.parametrize("is_done", [False, True])
def test_killed_while_it_sweeps_it_deletes_nothing_that_is_read_and_the_next_run_sweeps_the_rest(
    *, is_done: bool
) -> None:
    for number in count(1):
        stream = Stream(*[2] * 14)
        run(stream.archive, options_of())

        def on_call(called: int, _: str, done: bool, number: int = number) -> None:  # noqa: FBT001
            if called > number or (called == number and done is is_done):
                raise Killed

        calls = Calls(stream.archive.table, stream.archive.objects, on_call)
        is_killed = True
        with suppress(Killed):
            run(stream.archive, options_of(), table=calls.table, objects=calls.objects, now=LONG_AFTER)
            is_killed = False
        assert_readable(stream.archive, stream.committed)
        run(stream.archive, options_of(), now=LONG_AFTER)
        assert_right(stream.archive, stream.committed)
        named = {entry.key for entry in log_of(stream.archive.table, stream.archive.stream.incarnation)}
        assert set(stream.archive.objects.objects) == named
        if not is_killed:
            break
    assert number > 10


class SlowReader:
    """Reads an archive a chunk at a time, while it changes."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._expected = {int(chunk.header.chunk_id) for chunk in stream.committed}
        self._chunks = scanned(stream.archive)
        self._found: dict[int, bytes] = {}

    def go_on(self) -> bool:
        """Read one more; return False, having checked all, at the end."""
        for chunk_id, data in self._chunks:
            assert not self._found or chunk_id > max(self._found)
            self._found[chunk_id] = data
            return True
        assert self._expected <= self._found.keys()
        stored = self._stream.archive.stored
        assert all(stored[chunk_id].data.endswith(data) for chunk_id, data in self._found.items())
        return False


class Disturbances:
    """Whatever may happen between, or to, a compaction's calls; what happens is not disturbed itself."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.stream = Stream(*(self.rng.randrange(1, 5) for _ in range(self.rng.randrange(2, 25))))
        self.late = [self.stream.put(self.rng.randrange(1, 4)) for _ in range(self.rng.randrange(3))]
        self._rate = self.rng.choice([0.01, 0.03, 0.1])
        self._is_inside = False
        self._reader: SlowReader | None = None
        self._is_late = False

    def on_call(self, _: int, name: str, is_done: bool) -> None:  # noqa: FBT001  as it is called
        if self._is_inside or self.rng.random() >= (0.2 if name == "apply" else self._rate):
            return
        self._is_inside = True
        try:
            if self.rng.random() < 0.5:
                self._act()
            else:
                self._fail(name, is_done=is_done)
        finally:
            self._is_inside = False

    def compact(self) -> None:
        """Compact with all that going on."""
        archive = self.stream.archive
        self._is_late = self.rng.random() < 0.5
        self._reader = None if self._is_late else self._reader
        calls = Calls(archive.table, archive.objects, self.on_call)
        with suppress(Killed):
            run(
                archive,
                self.options(),
                table=calls.table,
                objects=calls.objects,
                now=LONG_AFTER if self._is_late else NOW,
            )

    def options(self) -> CompactOptions:
        return options_of(self.rng.choice(list(Encoding)), target_bytes=self.rng.choice([500, 5000]))

    def _act(self) -> None:
        match self.rng.choice(["add", "late", "read", "compact", "go on", "go on"]):
            case "add":
                self.stream.add(self.rng.randrange(1, 4))
            case "late" if self.late:
                self.stream.commit(self.late.pop(self.rng.randrange(len(self.late))))
            case "compact":
                run(self.stream.archive, self.options())
            case "go on" if not self._is_late:  # else what it has planned may be deleted
                self._reader = self._reader or SlowReader(self.stream)
                if not all(self._reader.go_on() for _ in range(self.rng.randrange(1, 40))):
                    self._reader = None
            case _:
                assert_readable(self.stream.archive, self.stream.committed)

    def _fail(self, name: str, *, is_done: bool) -> None:
        if name == "apply" and self.rng.random() < 0.8:
            if not is_done and self.rng.random() < 0.5:
                raise LostRaceError("somebody else was first")
            raise OutcomeUnknownError("no answer came")
        if self.rng.random() < 0.3:
            raise Killed
        raise UnavailableError("slow down")


@pytest.mark.parametrize("seed", range(80))
def test_uploads_readers_another_compaction_and_failures_in_between_change_nothing_but_what_is_added(seed: int) -> None:
    disturbed = Disturbances(seed)
    stream = disturbed.stream
    for _ in range(4):
        disturbed.compact()
        assert_readable(stream.archive, stream.committed)
    for entry in disturbed.late:
        stream.commit(entry)
    assert not run(stream.archive, options_of(), now=LONG_AFTER).failures
    assert_right(stream.archive, stream.committed)
