"""Messages: the records of a chunk as consumers read them.

Most messages are one data section and nothing else. They are unpacked without a decoder, which makes the reader fast.
Where the native module is installed, it makes the messages (native/src/messages.rs), and asks this one in doubt.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import dropwhile, islice
from types import ModuleType
from typing import Any
from uuid import UUID

from coldstream.errors import BadMagicError, CorruptionError
from coldstream.format.amqp.json import to_json
from coldstream.format.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    Header,
    Properties,
    Sections,
    body_section,
    locate,
    read_body,
    read_section,
)
from coldstream.format.amqp.types import Char, Decimal, Symbol, Timestamp, Value
from coldstream.format.amqp.values import U32
from coldstream.format.chunk import Chunk, ChunkType
from coldstream.format.compression import decompress
from coldstream.format.entry import MAX_MESSAGE_BYTES, SIMPLE_HEADER_BYTES, SubBatch, iter_entries
from coldstream.format.native import NATIVE
from coldstream.units import KIB, Offset, TimestampMs, format_timestamp

_START = Offset(0)


class Message(ABC):
    """A message of a stream.

    `timestamp` is that of its chunk, `raw` the bytes as they were published. Everything else is AMQP 1.0, decoded on
    first access, which may raise: BadMagicError if the publisher sent something that is not AMQP, and then only `raw`
    is of use; another CorruptionError if the AMQP is damaged. The position in these errors is a byte of the message.
    """

    __slots__ = ("offset", "source", "timestamp")

    offset: Offset
    timestamp: TimestampMs
    source: str

    def __repr__(self) -> str:
        return f"<message at offset {self.offset}, {len(self.raw)} bytes>"

    @property
    @abstractmethod
    def raw(self) -> bytes:
        """The message as it was published."""

    @property
    @abstractmethod
    def body(self) -> Value:
        """The body: bytes for data, a list for AMQP sequences, any value for an AMQP value.

        None if there is no body: some clients publish an empty one that way.
        """

    @property
    @abstractmethod
    def body_kind(self) -> str | None:
        """The kind of the body, `data`, `sequence` or `value`; None if there is no body."""

    @property
    def header(self) -> Header | None:
        """The delivery settings of the message."""
        value: Header | None = self._section(HEADER)
        return value

    @property
    def delivery_annotations(self) -> dict[Value, Value] | None:
        """Annotations for the next node on the way."""
        value: dict[Value, Value] | None = self._section(DELIVERY_ANNOTATIONS)
        return value

    @property
    def message_annotations(self) -> dict[Value, Value] | None:
        """Annotations for the infrastructure; of an AMQP 0.9.1 message, exchange and routing key are here."""
        value: dict[Value, Value] | None = self._section(MESSAGE_ANNOTATIONS)
        return value

    @property
    def properties(self) -> Properties | None:
        """The standard properties."""
        value: Properties | None = self._section(PROPERTIES)
        return value

    @property
    def application_properties(self) -> dict[Value, Value] | None:
        """The publisher's own properties; of an AMQP 0.9.1 message, the headers."""
        value: dict[Value, Value] | None = self._section(APPLICATION_PROPERTIES)
        return value

    @property
    def footer(self) -> dict[Value, Value] | None:
        """Values that depend on the complete message, such as a signature."""
        value: dict[Value, Value] | None = self._section(FOOTER)
        return value

    @abstractmethod
    def _section(self, code: int) -> Value:
        """Return a section other than the body, None if the message has none of this kind."""

    def to_dict(self) -> dict[str, Any]:
        """Return the whole message as values that JSON can hold (json.py). Raises nothing, whatever the bytes.

        Keys: `offset`; `timestamp`, RFC 3339; the sections that exist, by the names above; `body`, if there is one; and
        `body_kind` unless it is `data`. A message that is not AMQP has `raw` instead of sections and body; one with
        damaged AMQP has `raw` and `error`.
        """
        known: dict[str, Any] = {"offset": self.offset, "timestamp": format_timestamp(self.timestamp)}
        try:
            return known | self._contents()
        except BadMagicError:
            return known | {"raw": to_json(self.raw)}
        except CorruptionError as err:
            return known | {"raw": to_json(self.raw), "error": str(err)}

    def _contents(self) -> dict[str, Any]:
        kind = self.body_kind
        named = {name: getattr(self, name) for name in _SECTION_NAMES}
        named["body_kind"] = None if kind == _DATA_KIND else kind
        contents = {name: to_json(value) for name, value in named.items() if value is not None}
        if kind is not None:
            contents["body"] = to_json(self.body)
        return contents


class _DataMessage(Message):
    """A message that is one data section in its shortest form, and so has nothing but a body."""

    __slots__ = ("body",)

    body: bytes

    @property
    def raw(self) -> bytes:
        size = len(self.body)
        return (
            _DATA8 + bytes((size,)) + self.body if size <= _MAX_DATA8_BYTES else _DATA32 + size.to_bytes(4) + self.body
        )

    @property
    def body_kind(self) -> str:
        return _DATA_KIND

    def _section(self, code: int) -> Value:  # noqa: ARG002  (it has no other section)
        return None


class _AnyMessage(Message):
    """A message of any bytes. Its sections are located on first access, and each is decoded once."""

    __slots__ = ("_decoded", "_name", "raw", "sections")

    raw: bytes
    sections: Sections | None
    _decoded: dict[int, Value]
    _name: str

    @property
    def body(self) -> Value:
        sections = self.sections or self._locate()
        return read_body(self.raw, sections, source=self._name)

    @property
    def body_kind(self) -> str | None:
        sections = self.sections or self._locate()
        return _BODY_KINDS[body_section(sections, source=self._name)]

    def _section(self, code: int) -> Value:
        sections = self.sections or self._locate()
        if code not in sections:
            return None
        if code not in self._decoded:
            self._decoded[code] = read_section(self.raw, sections, code, source=self._name)
        return self._decoded[code]

    def _locate(self) -> Sections:
        self._name = f"{self.source}, message at offset {self.offset}"
        self._decoded = {}
        self.sections = locate(self.raw, source=self._name)
        return self.sections


def messages(chunk: Chunk, *, source: str, from_offset: Offset = _START) -> Iterator[Message]:
    """Yield the messages of a chunk at or after `from_offset`, in order; a tracking chunk has none.

    Raises CorruptionError, after the messages before the fault, if entries or sub-batches contradict the chunk's header
    or their own; no message is ever yielded at the offset of another. The contents of messages are not checked here.
    Cost: 0.3 us a message, a quarter of it with the native module, and 64 KiB of memory. Sub-batches are unpacked
    whole, except those before `from_offset`.
    """
    if chunk.header.type is not ChunkType.USER or chunk.header.next_offset <= from_offset:
        return iter(())
    return _messages(chunk, source, from_offset)


def messages_in_python(chunk: Chunk, source: str, from_offset: Offset) -> Iterator[Message]:
    """Do what `messages` does, for a user chunk."""
    header = chunk.header
    next_offset = header.next_offset

    def rest(offset: int, at: int) -> Iterator[Message]:
        read = offset - header.chunk_id
        if read == header.entries and offset == next_offset and at == len(chunk.data):
            return
        # Go on entry by entry, from the first sub-batch or up to the fault that stopped the fast path.
        for entry in islice(iter_entries(chunk, source=source), read, None):
            first_offset = offset
            offset += entry.records if isinstance(entry, SubBatch) else 1
            if from_offset < offset <= next_offset:
                if isinstance(entry, SubBatch):
                    yield from _sub_batch(entry, first_offset, header.timestamp, source)
                else:
                    yield any_message(first_offset, header.timestamp, entry, source)

    found = _unpack(chunk.data, header.chunk_id, next_offset, timestamp=header.timestamp, source=source, rest=rest)
    if from_offset <= header.chunk_id:
        return found
    return (message for message in found if message.offset >= from_offset)


def _from_offset_on(chunk: Chunk, source: str, from_offset: Offset, offset: int) -> Iterator[Message]:
    """Do what `messages_in_python` does, without the messages before `offset`, which were read by the native module.

    All of the chunk is read again: an empty sub-batch right before `offset` has no offset at which one could begin.
    """
    return dropwhile(lambda message: message.offset < offset, messages_in_python(chunk, source, from_offset))


def in_place_of(message: Message, raw: bytes) -> Message:
    """Return a message at the same offset with other bytes."""
    return any_message(message.offset, message.timestamp, memoryview(raw), message.source)


def _sub_batch(batch: SubBatch, first_offset: int, timestamp: TimestampMs, source: str) -> Iterator[Message]:
    def rest(offset: int, at: int) -> Iterator[Message]:
        if (offset, at) != (next_offset, len(data)):
            deque(batch.messages(source=source), maxlen=0)  # raises what is wrong
        return iter(())

    data = decompress(batch.compression, batch.data, batch.uncompressed_bytes, source=source, position=batch.position)
    next_offset = first_offset + batch.records
    return _unpack(data, first_offset, next_offset, timestamp=timestamp, source=source, rest=rest)


def any_message(offset: int, timestamp: TimestampMs, raw: memoryview | bytes, source: str) -> Message:
    """Return a message of any bytes."""
    message = _AnyMessage()
    message.offset = Offset(offset)
    message.timestamp = timestamp
    message.source = source
    message.raw = bytes(raw)
    message.sections = None
    return message


def _unpack(
    data: memoryview,
    first_offset: int,
    next_offset: int,
    *,
    timestamp: TimestampMs,
    source: str,
    rest: Callable[[int, int], Iterator[Message]],
) -> Iterator[Message]:
    """Yield messages packed as simple entries, up to `next_offset`, the end, or the first other entry.

    Then yield from `rest`, called with the offset and the byte of `data` that were reached.
    """
    # All of this is for speed. Slicing bytes is twice as fast as slicing a view, so blocks are copied out, small enough
    # to stay in a cache. One read gets the length and the first section of a message. Messages have no __init__ to
    # call, and `rest` saves the caller a generator around this one.
    at, size = 0, len(data)
    block_bytes = _BLOCK_BYTES
    heads, data8 = _HEADS.unpack_from, _DATA8_NUMBER
    while at < size and first_offset < next_offset:
        block = b"".join((data[at : at + block_bytes], _PADDING))
        here, end = 0, len(block) - len(_PADDING)
        for offset in range(first_offset, next_offset):
            length, section, body_bytes = heads(block, here)
            after = here + 4 + length
            if after > end:
                first_offset = offset
                break
            message: Any
            if section == data8 and body_bytes == length - 5:
                message = _DataMessage()
                message.body = block[here + 9 : after]
            elif section == _DATA32_NUMBER and U32(block, here + 8)[0] == length - 8 > _MAX_DATA8_BYTES:
                # A short body in this form is left to `_AnyMessage`: here `raw` is rebuilt in the shortest form.
                message = _DataMessage()
                message.body = block[here + 12 : after]
            else:
                message = _AnyMessage()
                message.raw = block[here + 4 : after]
                message.sections = None
            message.offset = offset
            message.timestamp = timestamp
            message.source = source
            yield message
            here = after
        else:
            first_offset = next_offset
        if here:
            at += here
            block_bytes = _BLOCK_BYTES
        else:
            # Not one whole entry: take a block as large as the entry. A sub-batch's bit 31 makes its length too large,
            # and `rest` goes on with it.
            block_bytes = SIMPLE_HEADER_BYTES + length
            if length > MAX_MESSAGE_BYTES or at + block_bytes > size:
                break
    yield from rest(first_offset, at)


_BLOCK_BYTES = 64 * KIB
_HEADS = struct.Struct(
    ">"
    "I"  # length of a simple entry, bytes
    "I"  # the first four bytes of its message
    "B"  # the next byte: for a data section of up to 255 bytes, the length of the body
)
# A head is read by up to 12 bytes, also at the very end of a block, and must not run past it. As zeros, the padding is
# an entry that ends too late.
_PADDING = bytes(_HEADS.size + 3)

_DATA8 = b"\x00\x53\x75\xa0"  # u8 length, body
_DATA32 = b"\x00\x53\x75\xb0"  # u32 length, body
_DATA8_NUMBER = int.from_bytes(_DATA8)
_DATA32_NUMBER = int.from_bytes(_DATA32)
_MAX_DATA8_BYTES = 255

_DATA_KIND = "data"
_BODY_KINDS = {DATA: _DATA_KIND, SEQUENCE: "sequence", VALUE: "value", None: None}
_SECTION_NAMES = (
    "header",
    "delivery_annotations",
    "message_annotations",
    "properties",
    "application_properties",
    "footer",
)


def native_messages(native: ModuleType) -> Callable[[Chunk, str, Offset], Iterator[Message]]:
    """Return what does the same by the native module, which reads what it declines by `messages_in_python`."""
    types = native.MessageTypes(
        any_message=any_message,
        unpack=unpack_or_none,
        # A named tuple's own constructor is written in Python, and takes longer than all of its decoding.
        header=partial(tuple.__new__, Header),
        properties=partial(tuple.__new__, Properties),
        symbol=Symbol,
        char=Char,
        timestamp=Timestamp,
        decimal=Decimal,
        uuid=_uuid,
    )
    make = native.NativeMessages
    Message.register(native.NativeMessage)

    def messages_in_rust(chunk: Chunk, source: str, from_offset: Offset) -> Iterator[Message]:
        header = chunk.header
        found: Iterator[Message] = make(
            types,
            chunk.data,
            header.entries,
            header.records,
            header.chunk_id,
            header.timestamp,
            source,
            from_offset,
            partial(_from_offset_on, chunk, source, from_offset),
        )
        return found

    return messages_in_rust


def unpack_or_none(compression: int, data: bytes, uncompressed_bytes: int) -> bytes | bytearray | None:
    """Unpack a sub-batch; None if that is not possible, for whoever reads it in Python then to raise the error."""
    try:
        found = decompress(compression, memoryview(data), uncompressed_bytes, source="", position=0).obj
    except CorruptionError:
        return None
    return found if isinstance(found, bytes | bytearray) else None


def _uuid(content: bytes) -> UUID:
    return UUID(bytes=content)


_messages = messages_in_python if NATIVE is None else native_messages(NATIVE)
