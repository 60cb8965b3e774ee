"""The messages that stock clients read: the n-th is made from n alone, and so is what it is packed in.

Bytes are AMQP 1.0, written here by hand, because a million of them by rstream's encoder takes a minute.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from rstream import CompressionType

from tests.support.streams import SubBatch

BATCH = 100
"""Messages that are packed in one way: the first of them each by itself, the last as one sub-batch."""

ALONE = 60
_NOISE = random.Random(17).randbytes(4096)
_SHOPS = ("Köln", "Łódź", "Paris", "São Paulo", "東京")
_PROPERTIES = 3
"""Of so many messages one has properties."""

# Not Lz4: cramjam's frames have blocks that depend on one another, and the Java client drops what it cannot unpack.
_KINDS = (CompressionType.No, CompressionType.Gzip, CompressionType.Snappy, CompressionType.Zstd)


@dataclass(frozen=True, slots=True)
class NumberedMessage:
    """What clients that decode messages see of one."""

    body: bytes
    message_id: str
    shop: str

    def to_bytes(self) -> bytes:
        """Encode it: message annotations and properties if it has any, and a data section."""
        data = b"\0\x53\x75\xa0" + bytes([len(self.body)]) + self.body
        if not self.message_id:
            return data
        shop, message_id = self.shop.encode(), self.message_id.encode()
        entries = b"\xa3\x06x-shop\xa1" + bytes([len(shop)]) + shop
        annotations = b"\0\x53\x72\xc1" + bytes([len(entries) + 1, 2]) + entries
        properties = b"\0\x53\x73\xc0" + bytes([len(message_id) + 3, 1, 0xA1, len(message_id)]) + message_id
        return annotations + properties + data

    def fields(self) -> tuple[bytes, bytes, bytes]:
        """Return what the programs of clients that decode messages hash."""
        return self.body, self.message_id.encode(), self.shop.encode()


def numbered(number: int) -> NumberedMessage:
    """Make the message of a number."""
    body = b"%d:" % number + _NOISE[number % 3931 :][: 20 + number * 31 % 120]
    if number % _PROPERTIES:
        return NumberedMessage(body, "", "")
    return NumberedMessage(body, f"order-{number}", _SHOPS[number % len(_SHOPS)])


def entries(start: int, end: int, *, with_sub_batches: bool) -> Iterator[bytes | SubBatch]:
    """Yield the entries of a range of messages, which begins and ends with a batch."""
    for first in range(start, end, BATCH):
        messages = [numbered(number).to_bytes() for number in range(first, first + BATCH)]
        alone = ALONE if with_sub_batches else BATCH
        yield from messages[:alone]
        if with_sub_batches:
            yield SubBatch(messages[alone:], _KINDS[first // BATCH % len(_KINDS)])
