"""Changes of any writes, for tests in which the event does not matter."""

from __future__ import annotations

from collections.abc import Sequence

from coldstream.manifest.change import Change, Write
from coldstream.manifest.entry import Head, JournalEvent, JournalKind
from coldstream.units import TimestampMs


def change_to(head: Head, writes: Sequence[Write] = ()) -> Change:
    """Make the change to a head, with some event."""
    event = JournalEvent(head.revision, JournalKind.FRAGMENT_COMMITTED, TimestampMs(0), None, None)
    return Change(head, event, tuple(writes))
