"""The port to where write-ahead logs are kept: S3, S3 Express, a disk, or memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from coldstream.manifest.appender import WalKind, WalPlace
from coldstream.units import ByteRange


class WalStore(Protocol):
    """The objects of write-ahead logs, by place and sequence. Threads may share it; every call blocks.

    Every method raises UnavailableError, after bounded retries, if the store does not answer.
    """

    @property
    def kind(self) -> WalKind:
        """The kind of its places: every process can recover what is in S3, and only some what is elsewhere."""
        ...

    def is_here(self, place: WalPlace) -> bool:
        """Tell whether a WAL was written here, so that what is not here any more was trimmed, and nothing is lost.

        When in doubt, it was not: a WAL that is looked for in the wrong place is empty, and its batches would be lost.
        Cost: none, but for S3 Express a LIST.
        """
        ...

    def create(self, place: WalPlace, sequence: int, body: bytes) -> None:
        """Write an object that is not there yet; when this returns, it is durable. Cost: one PUT.

        Raises ObjectExistsError if there is one, which may be this very object: the answer to it was lost. Compare its
        nonce. Raises OutcomeUnknownError or UnavailableError if it may or may not be there.
        """
        ...

    def sequences(self, place: WalPlace) -> Sequence[int]:
        """Return the sequences that are there, in any order. Cost: one LIST a thousand."""
        ...

    def read(self, place: WalPlace, sequence: int, byte_range: ByteRange | None = None) -> bytes:
        """Read an object, or a range of it, which ends early if the object does. Cost: one GET.

        Raises ObjectNotFoundError.
        """
        ...

    def delete(self, place: WalPlace, sequences: Sequence[int]) -> None:
        """Delete objects, in the order given, those that are there. Cost: one DeleteObjects a thousand."""
        ...

    def epochs(self, writer: str) -> Sequence[int]:
        """Return the epochs of which a writer has objects, and on a disk also those of which it had some.

        Cost: one LIST a thousand objects.
        """
        ...
