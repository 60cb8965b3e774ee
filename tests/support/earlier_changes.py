"""Changes as earlier releases wrote them."""

from __future__ import annotations

from dataclasses import replace

from coldstream.manifest.change import Change, PutEntry


def without_later_fields(change: Change) -> Change:
    """Return a change whose new entry has no CRC-32 of its chunks alone, and no first epoch."""
    writes = (
        PutEntry(replace(write.entry, data_crc32=None, first_epoch=None)) if isinstance(write, PutEntry) else write
        for write in change.writes
    )
    return replace(change, writes=tuple(writes))
