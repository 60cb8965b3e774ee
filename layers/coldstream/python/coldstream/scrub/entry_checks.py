"""An entry against what a HEAD says of its object: pure, and no byte of the object is read."""

from __future__ import annotations

from collections.abc import Iterator

from coldstream.manifest.entry import FragmentEntry
from coldstream.scrub.damage import Damage
from coldstream.scrub.trouble import Trouble, differs
from coldstream.store.ports import ObjectInfo
from coldstream.units import TimestampMs

SETTLED_MS = 3_600_000
"""How long an object's storage class has to be what it is before the entry must say so: a copy comes first, and the
entry's change after it."""


def object_troubles(entry: FragmentEntry, info: ObjectInfo | None, now: TimestampMs) -> Iterator[Trouble]:
    """Yield what contradicts the entry. `info` is None if there is no object; `now` is AWS's clock.

    An object without a stored CRC-32 passes here; a deep scrub computes it.
    """
    if info is None:
        yield Trouble.of(Damage.OBJECT_MISSING, entry, f"there is no object {entry.key}")
        return
    if info.size_bytes != entry.object_bytes:
        detail = differs(f"the size of {entry.key} in bytes", expected=entry.object_bytes, found=info.size_bytes)
        yield Trouble.of(Damage.OBJECT_SIZE, entry, detail)
        return  # another size is another checksum, too: one damage, one finding
    if info.crc32 is not None and info.crc32 != entry.crc32:
        what = f"the CRC-32 that S3 keeps of {entry.key}"
        detail = differs(what, expected=f"{entry.crc32:08x}", found=f"{info.crc32:08x}")
        yield Trouble.of(Damage.OBJECT_CHECKSUM, entry, detail)
    if info.storage_class != entry.storage_class and info.last_modified + SETTLED_MS <= now:
        what = f"the storage class of {entry.key}"
        detail = differs(what, expected=entry.storage_class or "STANDARD", found=info.storage_class or "STANDARD")
        yield Trouble.of(Damage.STORAGE_CLASS, entry, detail)
