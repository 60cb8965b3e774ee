"""Sort keys of the manifest's items: a partition in its order.

    erasure#{id}                      the erasures
    event#{revision, 20 digits}       the journal
    gap#{first offset, 20 digits}     the gaps
    hold#{id}                         the holds
    log#{next offset, 20 digits}      the fragment entries, each under the offset after its last
    log#head                          the head, right after the last entry: letters sort after digits
    loss#{first offset}-{next offset}           the announced losses, 20 digits each
    quarantine#{first offset}-{next offset}     the segments in quarantine; nothing sorts between these and the losses
    tombstone#{due ms, 20 digits}#{key}         the objects to delete, by due time

The registry of streams is a partition of its own, `#streams`, a name that no incarnation can have:

    {sha256 of the names, 64 hex digits}#{incarnation}

The bindings of streams to clusters are in `#clusters`, under the same key without the incarnation.

The grants are in `#access`:

    {principal, or a pattern of principals} {pattern of streams}

The policies of retention are in `#policies`, each under its name, and cursors, which say how far long runs have got, in
`#cursors`.

What several processes change by revisions (`manifest.state_item`) is in partitions of its own: the maps of sharded
streams in `#shards`, each under the hash of vhost and logical name; the events of a map in `#shard-events#{that hash}`,
each under its revision, 20 digits; the members of a group of consumers in `#groups#{hash}`.

The index by time orders a stream's log by `{running timestamp + 2^63, 20 digits}#{next offset, 20 digits}`; the head is
last there too, under `~`.

The greatest next offset, 2^64, has 20 digits as well.
"""

from __future__ import annotations

import re
from hashlib import sha256

from coldstream.errors import InvalidQueryError
from coldstream.manifest.access import Grant
from coldstream.manifest.entry import (
    Erasure,
    FragmentEntry,
    Gap,
    Head,
    Hold,
    JournalEvent,
    Loss,
    Missing,
    Quarantine,
    Row,
    Tombstone,
)
from coldstream.manifest.stream import Incarnation, check_name
from coldstream.units import MIN_TIMESTAMP_MS, Offset, TimestampMs

REGISTRY = "#streams"
ACCESS = "#access"
CLUSTERS = "#clusters"
POLICIES = "#policies"
CURSORS = "#cursors"
LOG_HEAD = "log#head"
HOLDS = "hold#"
LAST_HOLD = "hold#\U0010ffff"
ERASURES = "erasure#"
GAPS = "gap#"
LAST_GAP = "gap#~"
MISSING = "loss#"
QUARANTINES = "quarantine#"
LAST_MISSING = "quarantine#~"
LAST_EVENT = "event#~"
TOMBSTONES = "tombstone#"
TIME_OF_HEAD = "~"

_REGISTERED = re.compile(r"[0-9a-f]{64}#[A-Za-z0-9_=-]{1,255}")


def log_key(next_offset: Offset) -> str:
    """Return the key of the entry that ends before `next_offset`."""
    return f"log#{next_offset:020}"


def gap_key(first_offset: Offset) -> str:
    """Return the key of the gap that begins at `first_offset`."""
    return f"gap#{first_offset:020}"


def missing_key(one: Missing) -> str:
    """Return the key of a loss, or of a segment in quarantine."""
    return f"{missing_from(type(one), one.first_offset)}-{one.next_offset:020}"


def missing_from(kind: type[Missing], first_offset: Offset) -> str:
    """Return the lower bound of the keys of losses or quarantines that begin at `first_offset` or later."""
    return f"{MISSING if kind is Loss else QUARANTINES}{first_offset:020}"


def quarantine_key(first_offset: Offset, next_offset: Offset) -> str:
    """Return the key of the quarantine of the segment of `first_offset` up to `next_offset`."""
    return f"{missing_from(Quarantine, first_offset)}-{next_offset:020}"


def tombstone_key(one: Tombstone) -> str:
    """Return the key of a tombstone."""
    return f"{due_from(one.due_at)}#{one.key}"


def due_from(due_at: TimestampMs) -> str:
    """Return the lower bound of the keys of tombstones that are due at `due_at` or later."""
    return f"{TOMBSTONES}{due_at:020}"


def event_key(revision: int) -> str:
    """Return the key of the event of the change to `revision`."""
    return f"event#{revision:020}"


def hold_key(id_: str) -> str:
    """Return the key of a hold."""
    return f"{HOLDS}{id_}"


def erasure_key(id_: str) -> str:
    """Return the key of an erasure."""
    return f"{ERASURES}{id_}"


def row_key(row: Row) -> str:  # noqa: PLR0911  one case a kind of item
    """Return the key of any item of a stream's partition."""
    match row:
        case FragmentEntry():
            return log_key(row.next_offset)
        case Head():
            return LOG_HEAD
        case Gap():
            return gap_key(row.first_offset)
        case Loss() | Quarantine():
            return missing_key(row)
        case Hold():
            return hold_key(row.id)
        case Erasure():
            return erasure_key(row.id)
        case Tombstone():
            return tombstone_key(row)
        case JournalEvent():
            return event_key(row.revision)


def time_key(running_timestamp: TimestampMs, next_offset: Offset) -> str:
    """Return the key, in the index by time, of the entry that ends before `next_offset`."""
    return f"{time_from(running_timestamp)}#{next_offset:020}"


def time_from(timestamp: TimestampMs) -> str:
    """Return the lower bound of the keys, in the index by time, of a running timestamp at or after `timestamp`."""
    return f"{timestamp - MIN_TIMESTAMP_MS:020}"


def grant_key(grant: Grant) -> str:
    """Return the key of a grant. Neither part has a space in it."""
    return f"{grant.principal} {grant.streams}"


def names_key(vhost: str, name: str) -> str:
    """Return the prefix of the registry's keys of all incarnations of a stream. Raises InvalidNameError."""
    check_name("vhost", vhost)
    check_name("stream name", name)
    # Without the length, two pairs of names could give one text, and share a key.
    return sha256(f"{len(vhost)}:{vhost}{name}".encode()).hexdigest() + "#"


def registry_key(vhost: str, name: str, incarnation: Incarnation) -> str:
    """Return the key of a stream in the registry: in the order of incarnations, which is that of their declaration."""
    return names_key(vhost, name) + incarnation


def check_cursor(cursor: str) -> str:
    """Return a cursor over the registry, which is one of its keys. Raises InvalidQueryError for anything else."""
    if not _REGISTERED.fullmatch(cursor):
        raise InvalidQueryError("cursor", f"{cursor[:80]!r} does not come from an earlier page of streams")
    return cursor
