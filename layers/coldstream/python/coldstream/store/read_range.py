"""`ReadRange`: a range that is in memory, in the place of one that arrives."""

from __future__ import annotations

from coldstream.store.object_values import RangeRead


class ReadRange:
    """Implement `ports.RangeStream` on what was read."""

    def __init__(self, read: RangeRead) -> None:
        self._data = memoryview(read.data)
        self._read = read

    @property
    def object_bytes(self) -> int:
        """Size of the whole object."""
        return self._read.object_bytes

    @property
    def etag(self) -> str:
        """The object's ETag."""
        return self._read.etag

    def read(self, size_bytes: int) -> bytes:
        """Read so many bytes."""
        piece, self._data = self._data[:size_bytes], self._data[size_bytes:]
        return bytes(piece)

    def close(self) -> None:
        """Give up what was not read."""
        self._data = memoryview(b"")
