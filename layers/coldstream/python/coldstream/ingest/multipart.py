"""Send a slice to its key: in one PUT, or in parts by a multipart upload that the next try goes on with.

S3 itself is the only memory of how far an upload came: the unfinished uploads of exactly that key, and their parts. A
part that is there with our size and CRC-32 is not sent again; one with other bytes is sent over it. An upload whose
parts are of other sizes is not ours to go on with: another is made beside it, and it is aborted once that is complete.

Replicas may send to the same key at once, each an upload of its own or all the same. S3 is told the ETag and the CRC-32
of every part, and the CRC-32 of the whole object, so that what is completed is what one of them has read; and it takes
one object for a key. An upload that fails is left for the next try. Those that nobody goes on with are the bucket's to
end, by a lifecycle rule for incomplete multipart uploads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from io import BytesIO
from zlib import crc32

from coldstream.errors import BadCrcError, ConflictError, ObjectExistsError
from coldstream.format.checksum import combine_crc32
from coldstream.ingest.slice import SegmentSlice
from coldstream.store.ports import ObjectStore, UploadedPart
from coldstream.units import MIB

PART_BYTES = 16 * MIB
"""Of a part, and the most that is sent in one PUT. S3 wants 5 MiB at least; a segment of 4 GiB has 256 parts."""

PARTS_IN_FLIGHT = 2


def send(slice_: SegmentSlice, key: str, objects: ObjectStore, on_bytes: Callable[[int], None]) -> None:
    """Write a slice to `key`. The file is read once, in order; memory: three parts at most.

    `on_bytes` is called with the size of each part before it is sent, and may block or raise. Cost: one PUT; of more
    than a part, a listing of uploads, one of each one's parts, a PUT a part and two requests more.

    Raises ObjectExistsError when the key is taken, ConflictError when another took the upload away or its parts over,
    FileNotFoundError, TruncatedError. Whatever is raised, the key has the whole slice or nothing of it.
    """
    if slice_.size_bytes <= PART_BYTES:
        (data,) = slice_.parts(PART_BYTES)
        on_bytes(len(data))
        objects.put_new(key, BytesIO(data), size_bytes=len(data), crc32=crc32(data))
        return
    unfinished = _unfinished(key, objects)
    ours = [upload_id for upload_id, parts in unfinished.items() if _fit(parts, slice_.size_bytes)]
    upload_id = max(ours, key=lambda each: len(unfinished[each])) if ours else objects.create_upload(key)
    put = partial(objects.put_part, key, upload_id)
    parts, checksum = _send_parts(slice_, unfinished.get(upload_id, ()), put, on_bytes)
    try:
        objects.complete_upload(key, upload_id, parts, crc32=checksum)
    except (ObjectExistsError, BadCrcError):
        objects.abort_upload(key, upload_id)
        raise
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
    """Tell whether parts could be some of ours: whether each has the size that ours of its number has."""
    return all(part.size_bytes == min(PART_BYTES, size_bytes - (part.number - 1) * PART_BYTES) for part in parts)


def _send_parts(
    slice_: SegmentSlice,
    there: Collection[UploadedPart],
    put: Callable[..., UploadedPart],
    on_bytes: Callable[[int], None],
) -> tuple[list[UploadedPart], int]:
    """Send what is not there; return all parts, by number, and the CRC-32 of the whole."""
    found = {(part.number, part.size_bytes, part.crc32): part for part in there}
    done: list[UploadedPart] = []
    in_flight: deque[Future[UploadedPart]] = deque()
    whole_crc32 = 0
    with (
        ThreadPoolExecutor(PARTS_IN_FLIGHT, thread_name_prefix="part") as pool,
        closing(slice_.parts(PART_BYTES)) as parts,
    ):
        for number, data in enumerate(parts, 1):
            checksum = crc32(data)
            whole_crc32 = combine_crc32(whole_crc32, checksum, len(data))
            if (part := found.get((number, len(data), checksum))) is not None:
                done.append(part)
                continue
            on_bytes(len(data))
            in_flight.append(pool.submit(put, number, data, crc32=checksum))
            if len(in_flight) == PARTS_IN_FLIGHT:
                done.append(in_flight.popleft().result())
        done.extend(future.result() for future in in_flight)
    return sorted(done, key=lambda part: part.number), whole_crc32
