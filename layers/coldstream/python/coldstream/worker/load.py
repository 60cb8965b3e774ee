"""The kind load: archived streams are replayed to a target, one after the other, once or on and on.

    find the streams            the newest incarnation of each that is named or matches
    fix where each begins       in the cursor, before anything is sent
    load each to its end        load_sink; the cursor follows what the target has confirmed
    with follow, wait for more, and go on

A stream and a super stream have each message once, because the broker knows what it has; a table, because its marks do.
To an exchange the cursor remembers, at least once: what was sent and not confirmed when a worker died is sent again.
Nothing is left out without a word: gaps, erased messages and those that the target does not take are skipped, by name.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from coldstream.jobs.run import Finished, Interrupted, JobRun, LeftOut, RunEnd, WaitsUntil
from coldstream.jobs.specs import LoadSpec
from coldstream.manifest.stream import StreamId
from coldstream.units import Offset, TimestampMs, format_timestamp, parse_duration
from coldstream.worker.after_load import check_deletable, delete_loaded
from coldstream.worker.load_account import LoadAccount
from coldstream.worker.load_bounds import LoadBounds
from coldstream.worker.load_cursor import LoadCursor, StreamPosition
from coldstream.worker.load_sink import LoadPart, LoadSink, LoadStep, find_sink
from coldstream.worker.stream_choice import choose_streams
from coldstream.worker.tools import WorkerTools


def run_load(run: JobRun, tools: WorkerTools) -> RunEnd:
    """Load what a job says. Raises as `replay` does, HeldError if what was loaded is to be deleted and may not be."""
    spec = run.spec
    assert isinstance(spec, LoadSpec)
    sink = find_sink(tools, spec.vhost, spec.target)
    by_message = spec.window_by == "message"
    bounds = LoadBounds.of_texts(spec.start, spec.end, run.began_at, by_message=by_message, follow=spec.follow)
    loader = StreamLoader(run, tools, sink, bounds, spec.streams, spec.rate)
    if spec.after_load == "delete" and not loader.cursor.positions:
        check_deletable(tools.table, spec, choose_streams(tools.table, spec.vhost, spec.streams, may_lack=spec.follow))
    if not loader.run_all():
        return Interrupted()
    note = delete_loaded(run, tools, loader.cursor, sink.label) if spec.after_load == "delete" else ""
    if note is None:
        return Interrupted()
    if spec.follow and not loader.is_final:
        until = TimestampMs(tools.now() + round(parse_duration(spec.poll_interval) * 1000))
        run.advance(lag_ms=0)
        return WaitsUntil(until, loader.waits_for)
    return Finished(note)


@dataclass(slots=True)
class StreamLoader:
    """Loads the streams of one run into a sink, and keeps the run's cursor. Exports use it as well."""

    run: JobRun
    tools: WorkerTools
    sink: LoadSink
    bounds: LoadBounds
    patterns: tuple[str, ...]
    rate: float | None = None
    cursor: LoadCursor = field(init=False)

    def __post_init__(self) -> None:
        self.cursor = LoadCursor.from_mapping(self.run.spec.vhost, self.run.cursor)

    @property
    def is_final(self) -> bool:
        """Whether all streams have come to an end that stays theirs."""
        return bool(self.cursor.positions) and all(one.is_done for one in self.cursor.positions.values())

    @property
    def waits_for(self) -> str:
        """What a run waits for that has loaded all there is."""
        if not self.cursor.positions:
            return "no archived stream matches yet"
        if self.bounds.end is None:
            return "all that is archived is loaded"
        return f"all that is archived before {self.bounds.end_text} is loaded, and more of it may still come"

    def run_all(self) -> bool:
        """Load all streams to the ends that they have now; return False if the run is to stop before."""
        self.sink.prepare()
        self._find_streams()
        # One after the other: a position is read when its turn has come.
        return all(self._load(self.cursor.positions[incarnation]) for incarnation in list(self.cursor.positions))

    def _find_streams(self) -> None:
        """Fix where each stream begins and ends, and write it down before anything is sent."""
        is_new = not self.cursor.positions
        positions = dict(self.cursor.positions)
        window = self.cursor.window
        if is_new and self.bounds.window is not None:
            window = self.bounds.window.identity
        if is_new or self.bounds.follow:
            for stream in self._chosen(is_new=is_new):
                if stream.incarnation not in positions:
                    begun = self.bounds.begin(self.tools.table, self.tools.objects, stream)
                    publisher = self.sink.publisher(begun, self.bounds.window)
                    positions[stream.incarnation] = replace(begun, publisher=publisher)
        for incarnation, position in positions.items():
            if position.end_text != self.bounds.end_text or not position.is_final:
                positions[incarnation] = self._with_its_end(position)
        self.cursor = LoadCursor(positions, window)
        self.cursor.check_size()
        self._advance(self.cursor)
        # Before anything is sent: an attempt after a crash must find the same beginnings, and the same publishers.
        self.run.checkpoint()

    def _chosen(self, *, is_new: bool) -> list[StreamId]:
        may_lack = self.bounds.follow or not is_new
        found = choose_streams(self.tools.table, self.run.spec.vhost, self.patterns, may_lack=may_lack)
        # A stream that was registered and has no fragment yet comes with the next look.
        heads = ((stream, self.tools.table.head(stream.incarnation)) for stream in found)
        return [stream for stream, head in heads if head is not None and head.next_offset is not None]

    def _with_its_end(self, position: StreamPosition) -> StreamPosition:
        """Find a stream's end, as it is now or was edited to; count what was passed over and is in the window now."""
        found = self.bounds.ended(self.tools.table, self.tools.objects, position)
        window = self.bounds.window
        if position.late_from is None or (window is not None and window.is_late(position.late_from)):
            return found
        text = f"{position.late} messages of {position.stream} before offset {position.done_to}"
        reason = f"from {format_timestamp(position.late_from)} on: they were passed over before the end was moved"
        self.run.skip(text, position.late, reason)
        return replace(found, late=0, late_from=None)

    def _load(self, position: StreamPosition) -> bool:
        if self.run.should_stop():
            return False
        if position.done_to >= position.end:
            return True
        incarnation = position.stream.incarnation
        account = LoadAccount(str(position.stream), position.done_to, position.end)

        def step(step: LoadStep) -> None:
            now = self.cursor.positions[incarnation]
            done_to = Offset(max(now.done_to, step.done_to))
            settled = account.settle(done_to)
            times = [time for time in (now.late_from, settled.late_from) if time is not None]
            moved = replace(now, done_to=done_to, late=now.late + settled.late, late_from=min(times) if times else None)
            self.cursor = self.cursor.with_position(moved)
            lag_ms = None
            if self.bounds.follow and step.sent_timestamp is not None:
                lag_ms = max(0, self.tools.now() - step.sent_timestamp)
            self._advance(self.cursor, step, settled.left_out, lag_ms)

        part = LoadPart(position, self.bounds.window, self.cursor.window, account, step, self.rate)
        is_complete = self.sink.load(self.run, part)
        if is_complete:
            step(LoadStep(position.end, 0, 0))
        return is_complete

    def _advance(
        self,
        cursor: LoadCursor,
        step: LoadStep | None = None,
        left_out: tuple[LeftOut, ...] = (),
        lag_ms: int | None = None,
    ) -> None:
        positions = cursor.positions.values()
        self.run.advance(
            cursor=cursor.to_mapping(),
            done=sum(one.done for one in positions),
            total=sum(one.offsets for one in positions),
            messages=0 if step is None else step.messages,
            bytes_=0 if step is None else step.bytes,
            lag_ms=lag_ms,
            left_out=left_out,
        )
