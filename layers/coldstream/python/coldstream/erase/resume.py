"""Erasures that were interrupted, of any stream, gone on with by a schedule."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coldstream.erase.report import ErasureReport
from coldstream.erase.run import Eraser, unfinished_erasures
from coldstream.erase.selection import Selection
from coldstream.errors import ColdstreamError
from coldstream.lifecycle.markers import write_missing_erasures
from coldstream.manifest.entry import Erasure
from coldstream.manifest.stream import StreamId

LEAST_AGE_MS = 3600 * 1000
"""An erasure that began later is probably still run by whoever began it. Two runs at once would do the work twice."""


@dataclass(frozen=True, slots=True)
class ResumedErasure:
    """An erasure that was not done: what became of it, or why nothing did.

    Of `report`, `error` and `function` one is there. `function` names the user's function without which it cannot go
    on: `coldstream erase NAME --resume --where MODULE:FUNCTION`.
    """

    stream: StreamId
    erasure: Erasure
    report: ErasureReport | None = None
    error: ColdstreamError | None = None
    function: str | None = None


def resume_erasures(eraser: Eraser, streams: Iterable[StreamId]) -> Iterator[ResumedErasure]:
    """Go on with the erasures of streams, one after the other, until all are done or `should_stop` is true.

    A run that died after its last transaction has not told the bucket of the end: that is done here, too. An error of
    one does not keep the others. Cost: a GetItem a stream; a Query and that of `write_missing_erasures` if it has any
    erasure; that of `Eraser.run` for those that are not done.
    """
    stores = eraser.stores
    for stream in streams:
        if eraser.should_stop():
            return
        head = stores.table.head(stream.incarnation)
        if head is None or not head.erasures:
            continue
        try:
            write_missing_erasures(stores, stream.incarnation)
        except ColdstreamError as err:
            yield ResumedErasure(stream, stores.table.erasures(stream.incarnation)[-1], error=err)
            continue
        if head.is_deleted:
            continue
        for erasure in unfinished_erasures(stores, stream.incarnation):
            if stores.now() - erasure.at >= LEAST_AGE_MS:
                yield _resume(eraser, stream, erasure)


def _resume(eraser: Eraser, stream: StreamId, erasure: Erasure) -> ResumedErasure:
    try:
        selection = Selection.from_text(erasure.where, source=f"erasure {erasure.id}")
        if selection.function is not None:
            return ResumedErasure(stream, erasure, function=selection.function)
        return ResumedErasure(stream, erasure, report=eraser.run(stream, erasure, selection))
    except ColdstreamError as err:
        return ResumedErasure(stream, erasure, error=err)
