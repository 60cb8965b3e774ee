"""The erasure of a stream: executors rewrite fragments ahead, and the driver commits them in the order of the log.

An object that was rewritten and is not committed, because a run died or the log changed, has nothing of what was to go.
Nothing names it, and the next garbage run deletes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, takewhile
from pathlib import Path

from coldstream.erase.copies import find_copies
from coldstream.erase.forecast import forecast_erasure
from coldstream.erase.report import ErasureForecast
from coldstream.erase.rewrite import Rewrite, rewrite_fragment
from coldstream.erase.scope import iter_settled, read_scope
from coldstream.erase.selection import Selection
from coldstream.errors import ColdstreamError, StreamNotFoundError
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.stream import StreamId
from coldstream.terminal.user_function import load_function
from coldstream.units import Offset
from coldstream_spark.maintenance.archive import RemoteArchive
from coldstream_spark.maintenance.split import borders
from coldstream_spark.maintenance.tasks import TaskFailedError, TaskFailure, TaskRunner


@dataclass(frozen=True, slots=True)
class ErasureTask:
    """A fragment to rewrite. The user's function travels by its name."""

    stream: StreamId
    entry: FragmentEntry
    selection: Selection


def loaded(selection: Selection) -> Selection:
    """Return a selection with its function loaded, if it has one. Raises InvalidSettingError."""
    if selection.function is None:
        return selection
    return selection.with_predicate(load_function(selection.function, "--where"))


def rewrite(archive: RemoteArchive, spool_dir: Path | None, task: ErasureTask) -> Rewrite | TaskFailure | None:
    """Rewrite a fragment."""
    try:
        selection = loaded(task.selection)
        return rewrite_fragment(archive.open(), task.stream.incarnation, task.entry, selection, spool_dir=spool_dir)
    except ColdstreamError as err:
        return TaskFailure.of(err, f"{task.stream}, offset {task.entry.first_offset}")


class RewriteAhead:
    """Hands an eraser the rewrites that it asks for, fragment by fragment; executors are some fragments ahead of it."""

    def __init__(self, archive: RemoteArchive, runner: TaskRunner, spool_dir: Path | None) -> None:
        self._archive = archive
        self._runner = runner
        self._spool_dir = spool_dir
        self._ahead: Iterator[tuple[FragmentEntry, Rewrite | TaskFailure | None]] = iter(())

    def __call__(self, stream: StreamId, entry: FragmentEntry, selection: Selection) -> Rewrite | None:
        """Return the rewrite of a fragment, None if its entry is not in the log any more. Raises TaskFailedError."""
        before, result = next(self._ahead, (None, None))
        if before != entry:
            # The first call, or the log has changed since executors were told of it.
            self._discard(result)
            self._ahead = self._from(stream, entry, selection)
            before, result = next(self._ahead, (None, None))
            if before != entry:
                self._discard(result)
                return None
        if isinstance(result, TaskFailure):
            raise TaskFailedError(result)
        return result

    def _from(
        self, stream: StreamId, entry: FragmentEntry, selection: Selection
    ) -> Iterator[tuple[FragmentEntry, Rewrite | TaskFailure | None]]:
        entries: list[FragmentEntry] = []

        def tasks() -> Iterator[ErasureTask]:
            for one in _entries(self._archive.open(), stream, entry.first_offset, selection):
                entries.append(one)
                yield ErasureTask(stream, one, replace(selection, predicate=None))

        for result in self._runner.map(partial(rewrite, self._archive, self._spool_dir), tasks()):
            yield entries.pop(0), result

    def _discard(self, result: Rewrite | TaskFailure | None) -> None:
        if isinstance(result, Rewrite) and result.after is not None:
            with suppress(ColdstreamError):
                self._archive.open().objects.delete(result.after.key)  # nobody else knows it


def _entries(
    stores: LifecycleStores, stream: StreamId, offset: Offset, selection: Selection
) -> Iterator[FragmentEntry]:
    """Yield the entries of the log from an offset to the end of a selection."""
    head = stores.table.head(stream.incarnation)
    if head is None:
        raise StreamNotFoundError(f"no incarnation {stream.incarnation!r}")
    end = selection.next_offset
    return takewhile(lambda one: end is None or one.first_offset < end, iter_settled(stores.table, head, offset))


def forecast(
    archive: RemoteArchive, runner: TaskRunner, stream: StreamId, selection: Selection, most_fragments: int
) -> ErasureForecast:
    """Return what an erasure would do: executors look through ranges of the log, each beginning with a fragment.

    Raises as `forecast_erasure`, and TaskFailedError.
    """
    stores = archive.open()
    scope = read_scope(stores, stream.incarnation, selection)
    head = stores.table.head(stream.incarnation)
    assert head is not None
    assert scope.selection.next_offset is not None
    first, end = scope.selection.first_offset, scope.selection.next_offset
    inner = (offset for offset in borders(head, most_fragments) if first < offset < end)
    pages = (stores.table.log_from_offset(stream.incarnation, offset, 1).entries for offset in inner)
    starts = (entry.first_offset for page in pages for entry in page)
    bounds = sorted({first, end, *(start for start in starts if first < start < end)})
    selections = (
        replace(scope.selection, first_offset=start, next_offset=following, predicate=None)
        for start, following in pairwise(bounds)
    )
    total = ErasureForecast(
        stream=stream,
        selection=scope.selection,
        copies=find_copies(stores, stream, selection.first_offset, scope.next_offset),
    )
    for result in runner.map(partial(look, archive, stream), selections):
        if isinstance(result, TaskFailure):
            raise TaskFailedError(result)
        total += result
    return total


def look(archive: RemoteArchive, stream: StreamId, selection: Selection) -> ErasureForecast | TaskFailure:
    """Look through a range of the log, and change nothing."""
    try:
        return forecast_erasure(archive.open(), stream, loaded(selection), with_copies=False)
    except ColdstreamError as err:
        return TaskFailure.of(err, f"{stream}, offset {selection.first_offset}")
