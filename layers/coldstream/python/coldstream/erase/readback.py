"""The proof that a new object is what was meant, by reading all of it back from the store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from coldstream.compact.footer import Footer
from coldstream.compact.verifier import read_verified
from coldstream.erase.fragment import ErasedFragment
from coldstream.erase.proof import KeptContent
from coldstream.errors import BadCountError, BadCrcError
from coldstream.format.chunk import iter_chunks
from coldstream.format.fragment import FRAGMENT_HEADER_BYTES
from coldstream.format.scanner import ChunkBegin, ChunkBytes, ChunkEnd
from coldstream.manifest.entry import FragmentEntry
from coldstream.manifest.groups import Group
from coldstream.store.ports import ObjectStore

_SAME = (
    "first_offset",
    "next_offset",
    "first_timestamp",
    "last_timestamp",
    "greatest_timestamp",
    "epoch",
    "chunks",
    "records",
    "messages",
    "segment_offset",
)
"""Attributes of an entry that an erasure does not change."""


def check_erased(
    objects: ObjectStore,
    before: FragmentEntry,
    after: FragmentEntry,
    fragment: ErasedFragment,
    *,
    should_stop: Callable[[], bool] = lambda: False,
) -> None:
    """Raise CorruptionError unless the object of `after` is the one of `before` without the erased messages.

    Every chunk is read: the index, the trailer, the sparse index and all CRCs must agree with the entry; ids, counts
    and timestamps of chunks must be those of before; what was to stay must be there, and nothing else. Cost: a GET each
    4 MiB of chunks. Raises also as `read_verified`.
    """
    expected = [getattr(before, name) for name in _SAME]
    found = [getattr(after, name) for name in _SAME]
    if expected != found:
        raise BadCountError(after.key, 0, ", ".join(_SAME), expected=expected, found=found)
    kept = KeptContent()
    held = bytearray()
    ordinal = 0
    with closing(read_verified(objects, Group((after,)), should_stop)) as events:
        for event in events:
            match event:
                case ChunkBegin():
                    held.clear()
                case ChunkBytes(view) if fragment.touched[ordinal]:
                    held += view
                case ChunkEnd(header, position, chunk_crc32):
                    if fragment.touched[ordinal]:
                        (chunk,) = iter_chunks(bytes(held), source=after.key, position=position)
                        kept.add_without(chunk, (), source=after.key)
                    else:
                        kept.add_whole(header, chunk_crc32)
                    ordinal += 1
                case Footer():
                    pass
    if kept.digest != fragment.kept:
        raise BadCrcError(
            after.key,
            FRAGMENT_HEADER_BYTES,
            "digest of what an erasure keeps",
            expected=fragment.kept.hex(),
            found=kept.digest.hex(),
        )
