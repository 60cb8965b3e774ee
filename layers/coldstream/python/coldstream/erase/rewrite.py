"""One fragment rewritten without what is to go: its new object put, and read back. The commit is left to the eraser.

Any process may do this, in any order and ahead of the commits. Nothing names the new object until then.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from coldstream.erase.chunk import Doubts
from coldstream.erase.fragment import erase_fragment
from coldstream.erase.new_object import put_erased
from coldstream.erase.readback import check_erased
from coldstream.erase.selection import Selection
from coldstream.errors import ColdstreamError, ObjectNotFoundError
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.stream import Incarnation
from coldstream.store.discard import discard
from coldstream.units import Offset


@dataclass(frozen=True, slots=True)
class Rewrite:
    """What became of a fragment: the entry of its new object, None if nothing in it was to erase.

    `messages` were erased; `offsets_sha256` is the digest of their offsets, each as a u64. The other two count the
    messages that stay because a condition could not be tried on them (`chunk.Doubts`).
    """

    before: FragmentEntry
    after: FragmentEntry | None = None
    messages: int = 0
    offsets_sha256: bytes = b""
    unreadable: int = 0
    unknown_filter_values: int = 0


def rewrite_fragment(
    stores: LifecycleStores,
    incarnation: Incarnation,
    entry: FragmentEntry,
    selection: Selection,
    *,
    spool_dir: Path | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Rewrite | None:
    """Rewrite a fragment; return None if its entry is not in the log any more.

    Cost: a GET each 4 MiB of chunks; if anything in it is erased, the same again to read it back, a GetItem, a HEAD and
    a PUT. Raises CorruptionError for a damaged fragment, StoppedError, and as `Selection.takes`.
    """
    doubts = Doubts()
    try:
        fragment = erase_fragment(
            stores.objects, entry, selection, doubts, spool_dir=spool_dir, should_stop=should_stop
        )
    except ObjectNotFoundError:
        if _is_in_log(stores, incarnation, entry):
            raise
        return None
    if fragment is None:
        return Rewrite(entry, unreadable=doubts.unreadable, unknown_filter_values=doubts.unknown_filter_values)
    with fragment:
        head = stores.table.head(incarnation)
        after = put_erased(
            stores.objects,
            stores.keys,
            incarnation,
            entry,
            fragment,
            least_generation=0 if head is None else head.generation,
            should_stop=should_stop,
        )
        try:
            check_erased(stores.objects, entry, after, fragment, should_stop=should_stop)
        except BaseException:
            with suppress(ColdstreamError):
                # Not deleted at once: another run of this erasure may find it at its key, and take it.
                discard(stores.table, incarnation, (after,), stores.now)
            raise
        return Rewrite(
            entry,
            after,
            fragment.messages,
            fragment.offsets_sha256,
            doubts.unreadable,
            doubts.unknown_filter_values,
        )


def _is_in_log(stores: LifecycleStores, incarnation: Incarnation, entry: FragmentEntry) -> bool:
    entries = stores.table.log_from_offset(incarnation, Offset(entry.next_offset - 1), 1).entries
    return any(one.key == entry.key for one in entries)
