"""The commit of one rewritten fragment: its entry takes the old one's place, and the old object gets a tombstone.

Uploads, compactions and sweeps all raise the stream's revision, so transactions lose races. They are planned again on
the new state, as long as the old entry is still the one that was rewritten.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256

from coldstream.erase.rewrite import Rewrite
from coldstream.errors import ColdstreamError, StaleGenerationError, StreamNotFoundError
from coldstream.lifecycle.stores import LifecycleStores
from coldstream.lifecycle.unfinished import finish
from coldstream.manifest.entry import Erasure, FragmentEntry
from coldstream.manifest.erasing import plan_erased_fragment
from coldstream.manifest.floors import check_not_deleted
from coldstream.manifest.stream import Incarnation
from coldstream.store.discard import discard
from coldstream.store.holding import read_holds
from coldstream.store.races import retry_lost_races
from coldstream.units import Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class Replacement:
    """A rewritten fragment on its way into the log, with the erasure as it is before and after."""

    before: FragmentEntry
    after: FragmentEntry
    erasure_before: Erasure
    erasure_after: Erasure


def replacement_of(erasure: Erasure, after: FragmentEntry, found: Rewrite) -> Replacement:
    """Return the replacement of a fragment by `after`, whose erasure counts the messages, and has their digest.

    The digest is SHA-256 of: the digest before; the old key, the new key, each in UTF-8 and with a zero byte after it;
    the new object's CRC-32; and the SHA-256 of the erased offsets. Nothing of it depends on the erased bytes.
    """
    before = found.before
    told = b"\0".join((before.key.encode(), after.key.encode(), after.crc32.to_bytes(4) + found.offsets_sha256))
    return Replacement(
        before,
        after,
        erasure,
        replace(
            erasure,
            messages=erasure.messages + found.messages,
            digest=sha256(bytes.fromhex(erasure.digest) + told).hexdigest(),
            reached=after.next_offset,
        ),
    )


def commit_replacement(
    stores: LifecycleStores, incarnation: Incarnation, one: Replacement, *, grace_ms: int | None = None
) -> TimestampMs | None:
    """Put the new entry into the log; return when the old object is due, None if others changed the entry first.

    The new object is discarded unless an entry names it. Cost: two GetItems, a Query and a transaction; a Query
    more if there are holds. Raises HeldError, StreamDeletedError, and LostRaceError if others kept being first.
    """
    due_at: TimestampMs | None = None

    def attempt() -> bool:
        nonlocal due_at
        finish(stores.table, incarnation, stores.now, stores.grace_ms)
        head = stores.table.head(incarnation)
        if head is None:
            raise StreamNotFoundError(f"no incarnation {incarnation!r}")
        holds = read_holds(stores.table, head)
        entries = stores.table.log_from_offset(incarnation, Offset(one.before.next_offset - 1), 1).entries
        current = entries[0] if entries else None
        if current is not None and current.key == one.after.key:
            return True  # by an earlier attempt, whose answer never came
        if current is None or current.key != one.before.key:
            return False
        check_not_deleted(head)
        at = stores.now()
        due_at = stores.due_at(at) if grace_ms is None else TimestampMs(at + grace_ms)
        change = plan_erased_fragment(
            head, current, one.after, one.erasure_before, one.erasure_after, holds, at=at, due_at=due_at
        )
        stores.table.apply(change)
        return True

    is_committed = False
    try:
        with suppress(StaleGenerationError):  # a fence was raised: the bytes are put again, at a later key
            is_committed = retry_lost_races(attempt)
    finally:
        # As in `compact.commit`: a DELETE that S3 carries out late could meet another object at this key, and a
        # transaction that is still on its way could name it. The fence of `discard` keeps both from happening.
        if not is_committed:
            with suppress(ColdstreamError):
                discard(stores.table, incarnation, [one.after], stores.now)
    return due_at if is_committed else None
