"""The erased message, as every reader takes it."""

from __future__ import annotations

from coldstream.format.amqp.message import messages
from coldstream.format.chunk import iter_chunks
from coldstream.format.erased import ERASED_MESSAGE
from coldstream.format.writer import make_chunk
from coldstream.units import ChunkId, Epoch, Offset, TimestampMs


def test_an_erased_message_is_a_whole_one_with_an_empty_body_and_nothing_else() -> None:
    _, data = make_chunk([ERASED_MESSAGE], chunk_id=ChunkId(0), timestamp=TimestampMs(0), epoch=Epoch(0))
    (chunk,) = iter_chunks(data, source="made")
    (message,) = messages(chunk, source="made", from_offset=Offset(0))
    assert (message.body, message.body_kind, message.raw) == (b"", "data", ERASED_MESSAGE)
    assert (message.header, message.properties, message.message_annotations, message.footer) == (None,) * 4
