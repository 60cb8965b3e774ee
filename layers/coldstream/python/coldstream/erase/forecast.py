"""What an erasure would do and cost, by reading what it would read, and writing nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from coldstream.compact.blocks import plan_blocks
from coldstream.compact.frame_parts import PART_BYTES
from coldstream.erase.chunk import Doubts
from coldstream.erase.copies import FoundCopies, find_copies
from coldstream.erase.fragment import erase_fragment
from coldstream.erase.report import ErasureForecast
from coldstream.erase.scope import iter_settled, read_scope
from coldstream.erase.selection import Selection
from coldstream.errors import StreamNotFoundError
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.entry import Encoding, FragmentEntry
from coldstream.manifest.stream import StreamId
from coldstream.store.prices import gets_usd, puts_usd

NOTE_PUTS = 1
"""The control object of the erasure is written after each fragment."""

HEADS = 1


@dataclass(slots=True)
class _Requests:
    """Requests to the bucket, and what they cost."""

    count: int = 0
    usd: float = 0.0

    def add_look(self, entry: FragmentEntry) -> None:
        """Count what it takes to look through a fragment."""
        gets = sum(1 for _ in plan_blocks(entry))
        self.count += gets
        self.usd += gets_usd(gets, entry.object_bytes, entry.storage_class)

    def add_rewrite(self, entry: FragmentEntry) -> None:
        """Count what it takes to write a fragment anew, and to read it back, as if it did not get smaller."""
        gets = HEADS + sum(1 for _ in plan_blocks(entry))
        puts = NOTE_PUTS + 1
        if entry.encoding is Encoding.ZSTD_SEEKABLE:
            puts = NOTE_PUTS + 2 + -(-entry.object_bytes // PART_BYTES)  # the upload is begun, and completed
        self.count += gets + puts
        self.usd += gets_usd(gets) + puts_usd(puts)


def forecast_erasure(
    stores: LifecycleStores,
    stream: StreamId,
    selection: Selection,
    *,
    spool_dir: Path | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    on_bytes: Callable[[int], None] = lambda _: None,
    with_copies: bool = True,
) -> ErasureForecast:
    """Return what an erasure would do now. It reads every fragment that the erasure would read, and changes nothing.

    Cost: that of `read_scope`, of `find_copies`, and a GET each 4 MiB of chunks. Raises what `Eraser.begin` and
    `Eraser.run` would raise, but for OtherCopiesError: the forecast has the copies. Without `with_copies` nobody looks
    for them: for whoever forecasts a long range in parts.
    """
    scope = read_scope(stores, stream.incarnation, selection)
    head = stores.table.head(stream.incarnation)
    if head is None:
        raise StreamNotFoundError(f"no incarnation {stream.incarnation!r}")
    pinned = scope.selection
    copies = FoundCopies()
    if with_copies:
        copies = find_copies(stores, stream, selection.first_offset, scope.next_offset)
    doubts, requests = Doubts(), _Requests()
    forecast = ErasureForecast(stream=stream, selection=pinned, gaps=scope.gaps, copies=copies)
    for entry in iter_settled(stores.table, head, pinned.first_offset):
        if entry.first_offset >= scope.next_offset:
            break
        requests.add_look(entry)
        forecast = replace(
            forecast,
            fragments_read=forecast.fragments_read + 1,
            read_bytes=forecast.read_bytes + entry.object_bytes,
        )
        fragment = erase_fragment(stores.objects, entry, pinned, doubts, spool_dir=spool_dir, should_stop=should_stop)
        if fragment is not None:
            with fragment:
                requests.add_rewrite(entry)
                forecast = replace(
                    forecast,
                    fragments=forecast.fragments + 1,
                    messages=forecast.messages + fragment.messages,
                    rewritten_bytes=forecast.rewritten_bytes + entry.object_bytes,
                )
        on_bytes(entry.data_bytes)
    return replace(
        forecast,
        unreadable=doubts.unreadable,
        unknown_filter_values=doubts.unknown_filter_values,
        requests=requests.count,
        cost_usd=requests.usd,
    )
