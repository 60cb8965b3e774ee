"""Multipart uploads that nobody will finish: their parts cost storage, and no listing of objects shows them."""

from __future__ import annotations

from coldstream.errors import ConflictError
from coldstream.garbage.kinds import ObjectKind, ObjectState, kind_of, least_age_ms
from coldstream.garbage.options import GarbageOptions
from coldstream.garbage.tally import Tally
from coldstream.store.keys import Keys
from coldstream.store.ports import ObjectStore
from coldstream.store.prices import storage_usd
from coldstream.units import TimestampMs


def abort_unfinished(objects: ObjectStore, keys: Keys, options: GarbageOptions, tally: Tally, at: TimestampMs) -> None:
    """Count the unfinished uploads, and with `delete` abort those that are garbage.

    An agent that comes back to an upload that was aborted stages its segment anew, and a compaction that is refused
    begins its object anew. Cost: one listing a thousand uploads, and for each old one a listing of its parts, and a
    DELETE. Raises UnavailableError.
    """
    for upload in objects.unfinished_uploads(keys.prefix):
        state = ObjectState.GARBAGE
        if kind_of(keys.parse(upload.key)) is ObjectKind.UNKNOWN:
            state = ObjectState.UNKNOWN
        elif at - upload.initiated_at <= least_age_ms(ObjectKind.UNFINISHED, options.older_than_ms):
            state = ObjectState.YOUNG
        size_bytes = 0
        if state is ObjectState.GARBAGE:
            try:
                size_bytes = sum(part.size_bytes for part in objects.parts(upload.key, upload.upload_id))
            except ConflictError:
                continue  # completed or aborted since the listing
            if options.delete:
                objects.abort_upload(upload.key, upload.upload_id)
        tally.add(
            ObjectKind.UNFINISHED,
            state,
            upload.key,
            size_bytes=size_bytes,
            usd=storage_usd(size_bytes),
            written=upload.initiated_at,
        )
