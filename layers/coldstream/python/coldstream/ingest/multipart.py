"""Send a slice to its key: in one PUT, or in parts by a multipart upload that the next attempt continues.

S3 alone remembers how far an upload came: it lists the unfinished uploads of exactly that key, and their parts. A part
that is there with our size and CRC-32 is not sent again; one with other bytes is overwritten. An upload whose parts
have other sizes cannot be continued: another is created beside it, and it is aborted when that one is complete.

Replicas may send to the same key at once, each by its own upload or all by the same one. S3 is told the ETag and the
CRC-32 of every part, and the CRC-32 of the whole object, so an upload completes only with the bytes that one of them
has read; and S3 takes one object for a key. An upload that fails is left for the next attempt. A lifecycle rule of the
bucket ends incomplete uploads that nobody continues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import BinaryIO, cast

from awscrt.checksums import combine_crc32

from coldstream.errors import BadCrcError, ConflictError, ObjectExistsError
from coldstream.flow.window import Window
from coldstream.ingest.slice import SegmentSlice
from coldstream.ingest.slice_part import SlicePart
from coldstream.store.ports import ObjectStore, UploadedPart
from coldstream.units import MIB

PART_BYTES = 16 * MIB
"""Size of a part, and the most that is sent in one PUT. S3 wants 5 MiB at least; a segment of 4 GiB has 256 parts."""

PARTS_IN_FLIGHT = 3


def send(slice_: SegmentSlice, key: str, objects: ObjectStore, on_bytes: Callable[[int], None]) -> None:
    """Write a slice to `key`. Reads each part of the file twice, right before it is sent and then.

    `on_bytes` is called with the size of each part before it is sent, and may block or raise. Memory: a block of each
    part in flight. Cost: one PUT; for more than one part, a listing of uploads, a listing of each one's parts, a PUT a
    part and two requests more.

    Raises ObjectExistsError when the key is taken, ConflictError when another sender completed or aborted the upload or
    overwrote its parts, FileNotFoundError, TruncatedError. Whatever is raised, the key has the whole slice or nothing.
    """
    if slice_.size_bytes <= PART_BYTES:
        with slice_.parts(PART_BYTES) as (part,):
            checksum = part.checksum()
            on_bytes(len(part))
            objects.put_new(key, cast("BinaryIO", part), size_bytes=len(part), crc32=checksum)
            part.forget()
        return
    unfinished = _unfinished(key, objects)
    ours = [upload_id for upload_id, parts in unfinished.items() if _fit(parts, slice_.size_bytes)]
    # The one with most parts: what another replica has sent to it need not be sent again.
    upload_id = max(ours, key=lambda each: len(unfinished[each])) if ours else objects.create_upload(key)
    put = partial(objects.put_part, key, upload_id)
    parts, checksum = _send_parts(slice_, unfinished.get(upload_id, ()), put, on_bytes)
    try:
        objects.complete_upload(key, upload_id, parts, crc32=checksum)
    except (ObjectExistsError, BadCrcError):
        # Nothing can come of this upload any more, and parts cost money until somebody ends it. After any other error
        # it stays, to be continued.
        objects.abort_upload(key, upload_id)
        raise
    # Only now: until ours was complete, another replica's upload may have been the one to arrive first.
    for other in unfinished.keys() - {upload_id}:
        objects.abort_upload(key, other)


def _unfinished(key: str, objects: ObjectStore) -> dict[str, tuple[UploadedPart, ...]]:
    """Return the parts of each unfinished upload, by its id."""
    found: dict[str, tuple[UploadedPart, ...]] = {}
    for upload_id in objects.uploads(key):
        with suppress(ConflictError):  # completed or aborted since
            found[upload_id] = objects.parts(key, upload_id)
    return found


def _fit(parts: Collection[UploadedPart], size_bytes: int) -> bool:
    """Tell whether parts may be ours: each has the size that our part of its number has."""
    return all(part.size_bytes == min(PART_BYTES, size_bytes - (part.number - 1) * PART_BYTES) for part in parts)


def _send_parts(
    slice_: SegmentSlice,
    uploaded: Collection[UploadedPart],
    put: Callable[..., UploadedPart],
    on_bytes: Callable[[int], None],
) -> tuple[list[UploadedPart], int]:
    """Send the parts that are not uploaded yet; return all parts, by number, and the CRC-32 of the whole."""
    known = {(part.number, part.size_bytes, part.crc32): part for part in uploaded}
    arrived: list[UploadedPart] = []
    whole_crc32 = 0

    def put_one(number: int, data: SlicePart, checksum: int) -> UploadedPart:
        done = put(number, data, crc32=checksum)
        data.forget()
        return done

    # Leaving the pool waits for the parts in flight, after an error too: the next attempt must not run beside them. The
    # file is closed after that: its descriptor may be another file's then.
    with (
        slice_.parts(PART_BYTES) as parts,
        ThreadPoolExecutor(PARTS_IN_FLIGHT, thread_name_prefix="part") as pool,
    ):
        window: Window[UploadedPart] = Window(pool, max_calls=PARTS_IN_FLIGHT)
        for number, data in enumerate(parts, 1):
            checksum = data.checksum()
            # Combined from the CRCs of the parts: otherwise every byte would be summed twice.
            whole_crc32 = combine_crc32(whole_crc32, checksum, len(data))
            if (part := known.get((number, len(data), checksum))) is not None:
                data.forget()
                arrived.append(part)
                continue
            on_bytes(len(data))
            window.submit(partial(put_one, number, data, checksum))
            # Wait here, before the next part is read: else it would be out of the page cache when it is sent.
            if not window.has_room():
                arrived.append(window.take())
        while len(window):
            arrived.append(window.take())
    return sorted(arrived, key=lambda part: part.number), whole_crc32
