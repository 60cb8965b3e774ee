"""One pass over the bucket: list it once, judge every object by its kind, and delete what is proven to be garbage.

The listing goes through the bucket in the order of the keys, and all objects of one kind and stream lie together. So
memory is bounded: a page of the listing, a page of entries, a window of unnamed objects, a thousand keys to delete, and
eight bytes for each tombstone of a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from coldstream.garbage.bucket_notes import bucket_notes, noncurrent_versions
from coldstream.garbage.buried import BuriedKeys
from coldstream.garbage.cursor import GarbageCursor, LastPass
from coldstream.garbage.deleter import Deleter
from coldstream.garbage.fence_notes import FenceNotes
from coldstream.garbage.fragments import FragmentJudge, Judged
from coldstream.garbage.kinds import ObjectKind, ObjectState
from coldstream.garbage.looked_at import LookedAt
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.quarantined import QuarantineJudge
from coldstream.garbage.report import GarbageReport
from coldstream.garbage.staged import StagedJudge
from coldstream.garbage.tally import Tally
from coldstream.garbage.unfinished import abort_unfinished
from coldstream.garbage.unknown_streams import UnknownStreams
from coldstream.garbage.write_ahead_logs import WalJudge
from coldstream.manifest.stream import Incarnation
from coldstream.store.control import ControlObjects
from coldstream.store.keys import Keys
from coldstream.store.ports import ManifestTable, ObjectStore
from coldstream.units import TimestampMs

WINDOW = 10_000
"""Objects that are judged at a time, at most, and after which a run keeps how far it came. Each takes half a kilobyte
of memory if nothing names it; each window then takes a fence, and a reading of the last changes."""

TOLD_EVERY = 1000
"""Objects after which a caller is told how far the run is."""

_FRAGMENTS = frozenset({ObjectKind.FRAGMENT, ObjectKind.LATER_FRAGMENT})
_QUARANTINE = frozenset({ObjectKind.QUARANTINED, ObjectKind.QUARANTINE_NOTE})


@dataclass(frozen=True, slots=True)
class GarbageCollector:
    """Finds the garbage of one archive. `now` is AWS's clock (`store.clock`), never the host's.

    `cursor` is where a run keeps how far it came, None if it need not.
    """

    table: ManifestTable
    objects: ObjectStore
    keys: Keys
    now: Callable[[], TimestampMs]
    cursor: GarbageCursor | None = None

    def run(
        self,
        options: GarbageOptions,
        *,
        resume: bool = True,
        should_stop: Callable[[], bool] = lambda: False,
        on_objects: Callable[[int], None] = lambda _: None,
    ) -> GarbageReport:
        """Make one pass, or go on with the last one if it was stopped. Safe to repeat, and beside any other writer.

        `on_objects` is called for every thousand objects that are looked at. The pass stops, and
        keeps how far it came, soon after `should_stop` is true: after the proof and the deletions of a window.

        Cost, in requests to S3: three of the bucket's settings, one LIST a thousand objects, one DeleteObjects a
        thousand that are deleted, one DELETE for each staged segment, and one listing a thousand unfinished uploads;
        for the manifest's, see `FragmentJudge`. Raises UnavailableError; the next run goes on where this one was last
        certain. Raises InvalidInputError as `UnknownStreams` does.
        """
        reached, tally = self.cursor.load(options) if self.cursor is not None and resume else (None, Tally())
        walk = _Walk(self, options, tally, after=reached, should_stop=should_stop, on_objects=on_objects)
        is_complete = walk.run()
        if is_complete:
            abort_unfinished(self.objects, self.keys, options, tally, walk.at)
        if self.cursor is not None and is_complete:
            self.cursor.end(LastPass.of(tally, self.now()))
        return self.report(options, tally, is_complete=is_complete, reached=walk.reached)

    def collect(self, options: GarbageOptions, *, after: str | None, until: str | None) -> Tally:
        """Deal with the objects whose keys come after one key, up to and including another; None is no bound.

        Several processes may share a bucket so, and even a stream. Nothing is kept of how far it came, and unfinished
        uploads are left to `abort_unfinished`. Cost and errors as those of `run`, without the bucket's settings.
        """
        tally = Tally()
        _Walk(replace(self, cursor=None), options, tally, after=after, until=until).run()
        return tally

    def report(
        self, options: GarbageOptions, tally: Tally, *, is_complete: bool = True, reached: str | None = None
    ) -> GarbageReport:
        """Return the report of what was counted. Cost: three GETs, and with `versions` a listing."""
        capabilities = self.objects.capabilities()
        counts_versions = is_complete and options.versions and capabilities.versioned is not False
        return GarbageReport(
            delete=options.delete,
            findings=tally.findings(),
            deletions=tally.deletions,
            is_complete=is_complete,
            reached=reached,
            capabilities=capabilities,
            notes=bucket_notes(capabilities),
            noncurrent=noncurrent_versions(self.objects, self.keys.prefix) if counts_versions else None,
        )


class _Walk:
    """The state of one run on its way through the listing."""

    def __init__(
        self,
        collector: GarbageCollector,
        options: GarbageOptions,
        tally: Tally,
        *,
        after: str | None,
        until: str | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        on_objects: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._after = after
        self._until = until
        self.at = collector.now()
        self._collector = collector
        self._options = options
        self._tally = tally
        self._deleter = Deleter(collector.table, collector.objects, tally, collector.now)
        self._should_stop = should_stop
        self._on_objects = on_objects
        self._is_stopped = False
        self._judged_to = after or ""
        self._seen = self._saved = 0
        table, objects, keys = collector.table, collector.objects, collector.keys
        unknown = UnknownStreams(table, objects, keys, options)
        self._fragments = FragmentJudge(
            table,
            options,
            self.at,
            unknown,
            collector.now,
            FenceNotes(ControlObjects(objects, keys)),
            BuriedKeys(table),
        )
        self._staged = StagedJudge(table, options, self.at)
        self._quarantined = QuarantineJudge(table, options, self.at)
        self._logs = WalJudge(table, objects, keys, options, self.at)

    @property
    def reached(self) -> str | None:
        """The last key that was dealt with, like everything before it."""
        return self._judged_to or None

    def run(self) -> bool:
        """Judge everything that was not judged before; return whether the end of the listing was reached."""
        for (_, kinds, incarnation), group in groupby(self._listed(), key=self._group_of):
            for one, state in self._judged(kinds, incarnation, group):
                self._tally.count(one, state)
                if state is ObjectState.GARBAGE and self._options.delete:
                    self._deleter.take(one)
                self._judged_to = max(self._judged_to, one.key)
            if self._seen - self._saved >= WINDOW:
                # What waits to be deleted is not deleted first: if this dies, the next pass finds it again.
                self._save()
        self._deleter.flush()
        if self._is_stopped:
            self._save()
        return not self._is_stopped

    def _listed(self) -> Iterator[LookedAt]:
        """Yield what is listed until the run is to stop."""
        keys = self._collector.keys
        for listed in self._collector.objects.listed(keys.prefix, after=self._after):
            if self._until is not None and listed.key > self._until:
                return
            if self._seen == self._options.max_objects or self._should_stop():
                self._is_stopped = True
                return
            self._seen += 1
            if self._seen % TOLD_EVERY == 0:
                self._on_objects(TOLD_EVERY)
            yield LookedAt.of(listed, keys.parse(listed.key))

    def _group_of(self, one: LookedAt) -> tuple[int, frozenset[ObjectKind], Incarnation | None]:
        """Return what is judged together: all fragments of a stream, all of its quarantine, else one kind of a stream.

        It is called once for each object, as it is listed, so a window ends after so many.
        """
        kinds = next((kinds for kinds in (_FRAGMENTS, _QUARANTINE) if one.kind in kinds), frozenset({one.kind}))
        return self._seen // WINDOW, kinds, one.incarnation

    def _judged(
        self, kinds: frozenset[ObjectKind], incarnation: Incarnation | None, group: Iterator[LookedAt]
    ) -> Iterator[Judged]:
        if incarnation is not None and kinds == _FRAGMENTS:
            return self._fragments.judge(incarnation, group)
        if incarnation is not None and kinds == _QUARANTINE:
            return self._quarantined.judge(incarnation, group)
        if incarnation is not None and ObjectKind.STAGED in kinds:
            return self._staged.judge(incarnation, group)
        if ObjectKind.WAL in kinds:
            return self._logs.judge(group)
        state = ObjectState.UNKNOWN if ObjectKind.UNKNOWN in kinds else ObjectState.IN_USE
        return ((one, state) for one in group)

    def _save(self) -> None:
        cursor = self._collector.cursor
        if cursor is not None and self._judged_to:
            cursor.save(self._options, self._judged_to, self._tally)
            self._saved = self._seen
