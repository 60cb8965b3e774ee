"""What passes through the port to the table: pages of a log, pages of streams, and overviews."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.manifest.entry import FragmentEntry, Gap, Head, Hold, Missing
from coldstream.manifest.stream import StreamId
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class LogPage:
    """Consecutive entries of a stream's log, in ascending order.

    `head` is set if the page reached the end of the log: nothing follows the last entry. A page without entries and
    without a head means that the table does not know the stream.
    """

    entries: tuple[FragmentEntry, ...]
    head: Head | None


@dataclass(frozen=True, slots=True)
class StreamPage:
    """Some of the streams of a table; `cursor` continues after them, None if there are no more."""

    streams: tuple[StreamId, ...]
    cursor: str | None


@dataclass(frozen=True, slots=True)
class StreamOverview:
    """A head, and the items that tell what is missing or held of its stream: without the log, whatever its size.

    `gaps`, in order, are the last ones; of the offsets before `gaps_from` there may be more that were not read.
    `missing` are the losses, then the quarantines, each by first offset, and `is_missing_cut` says that there are more.
    All holds are there, by id, unless they alone fill a page; then `gaps_from` is past every offset.
    """

    head: Head | None
    gaps: tuple[Gap, ...] = ()
    holds: tuple[Hold, ...] = ()
    missing: tuple[Missing, ...] = ()
    gaps_from: Offset | None = None
    is_missing_cut: bool = False
