"""The codecs of sub-batches that rstream 1.1 leaves to its user: snappy and lz4 in their framed formats, and zstd.

They are what the Java client's defaults write.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import cramjam
from rstream import CompressionType
from rstream.compression import ICompressionCodec, StreamCompressionCodecs


class Codec(ICompressionCodec):
    """A sub-batch packed by one of cramjam's modules; rstream copies the registered one for each sub-batch."""

    def __init__(self, kind: CompressionType, library: ModuleType) -> None:
        self._kind = kind
        self._library = library
        self._messages = 0
        self._uncompressed_bytes = 0
        self._data = b""

    def compress(self, messages: Sequence[bytes]) -> None:  # type: ignore[override]  # rstream's is generic
        packed = b"".join(len(message).to_bytes(4) + message for message in messages)
        self._messages = len(messages)
        self._uncompressed_bytes = len(packed)
        self._data = bytes(self._library.compress(packed))

    def uncompress(self, compressed_data: bytes, uncompressed_data_size: int) -> bytes:
        data = bytes(self._library.decompress(compressed_data))
        if len(data) != uncompressed_data_size:
            raise ValueError(f"{len(data)} bytes where {uncompressed_data_size} were promised")
        return data

    def compressed_size(self) -> int:
        return len(self._data)

    def uncompressed_size(self) -> int:
        return self._uncompressed_bytes

    def messages_count(self) -> int:
        return self._messages

    def compression_type(self) -> int:
        return self._kind.value

    def data(self) -> bytes:
        return self._data


def register_codecs() -> None:
    """Make rstream able to pack and unpack sub-batches of every compression there is."""
    for kind, library in (
        (CompressionType.Snappy, cramjam.snappy),
        (CompressionType.Lz4, cramjam.lz4),
        (CompressionType.Zstd, cramjam.zstd),
    ):
        StreamCompressionCodecs.register_codec(kind, Codec(kind, library))
