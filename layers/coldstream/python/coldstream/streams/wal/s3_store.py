"""Write-ahead logs in S3, below the archive's prefix: in the archive's bucket, or in one of S3 Express One Zone."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from zlib import crc32

from coldstream.errors import UnavailableError
from coldstream.manifest.appender import WalKind, WalPlace
from coldstream.store.keys import Keys
from coldstream.store.parsed_keys import KeyKind, ParsedKey
from coldstream.store.ports import ObjectStore
from coldstream.units import ByteRange

_WHOLE = ByteRange(0, 1 << 32)
"""No object is larger."""


class S3WalStore:
    """Implement `store.WalStore` in the archive's own bucket, which every opener of a stream has."""

    def __init__(self, objects: ObjectStore, keys: Keys) -> None:
        self._objects = objects
        self._keys = keys

    @property
    def kind(self) -> WalKind:
        """In S3."""
        return WalKind.S3

    def is_here(self, place: WalPlace) -> bool:
        """Tell whether a WAL was written here: all of this kind were."""
        return place.kind is self.kind

    def create(self, place: WalPlace, sequence: int, body: bytes) -> None:
        """Write an object that is not there yet; S3 refuses bytes that did not arrive as they were sent."""
        key = self._key(place, sequence)
        self._objects.put_new(key, io.BytesIO(body), size_bytes=len(body), crc32=crc32(body))

    def sequences(self, place: WalPlace) -> Sequence[int]:
        """Return the sequences that are there."""
        prefix = self._key(place, 0).rpartition("/")[0] + "/"
        return [at.sequence for at in self._parsed(prefix) if at.sequence is not None]

    def read(self, place: WalPlace, sequence: int, byte_range: ByteRange | None = None) -> bytes:
        """Read an object, or a range of it."""
        return self._objects.get_range(self._key(place, sequence), byte_range or _WHOLE).data

    def delete(self, place: WalPlace, sequences: Sequence[int]) -> None:
        """Delete objects."""
        report = self._objects.delete_many([self._key(place, sequence) for sequence in sequences])
        if report.failed:
            key, reason = report.failed[0]
            raise UnavailableError(f"{len(report.failed)} objects were not deleted, such as {key}: {reason}")

    def epochs(self, writer: str) -> Sequence[int]:
        """Return the epochs of which a writer has objects. Cost: one LIST a thousand of these."""
        return list({at.epoch for at in self._parsed(self._keys.wal(writer)) if at.epoch is not None})

    def _key(self, place: WalPlace, sequence: int) -> str:
        return self._keys.wal_object(place.writer, place.epoch, sequence)

    def _parsed(self, prefix: str) -> Iterator[ParsedKey]:
        for key in self._objects.keys(prefix):
            parsed = self._keys.parse(key)
            if parsed is not None and parsed.kind is KeyKind.WAL:
                yield parsed


class ExpressWalStore(S3WalStore):
    """Implement `store.WalStore` in a directory bucket of S3 Express One Zone, beside the archive's bucket.

    It answers in a few milliseconds, at a higher price for bytes and a lower one for requests, and is in one zone
    alone: with the zone, what was acknowledged and not flushed is lost. It lists keys in no order, under prefixes that
    end in "/", and cannot begin a listing after a key: nothing here asks for more.

    Every opener of the streams needs a client with the same bucket. One without it, or with another one, gets
    NotClosedError for a stream that was not closed. The archive's garbage collection does not see this bucket.
    """

    @property
    def kind(self) -> WalKind:
        """In S3 Express."""
        return WalKind.EXPRESS

    def is_here(self, place: WalPlace) -> bool:
        """Tell whether a WAL has objects here: one that was not closed does. In another bucket it has none."""
        return place.kind is self.kind and len(self.sequences(place)) > 0
