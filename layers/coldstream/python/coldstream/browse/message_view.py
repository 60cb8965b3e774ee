"""A message as people look at it: where it is, every section as rows, and its body, all cut at limits."""

from __future__ import annotations

from dataclasses import dataclass

from coldstream.browse.body_view import BodyView
from coldstream.units import ChunkId, Offset, TimestampMs


@dataclass(frozen=True, slots=True)
class EntryPlace:
    """Where in its chunk a message is.

    `number` is that of the entry, from 0 on. Of a sub-batch, `compression` is its name, such as `zstd`, `index` the
    message's place in it and `records` how many it has; of a simple entry, `compression` is None.
    """

    number: int
    compression: str | None = None
    index: int = 0
    records: int = 1

    @property
    def is_sub_batch(self) -> bool:
        """Whether the publisher packed the message with others."""
        return self.compression is not None


@dataclass(frozen=True, slots=True)
class SectionRow:
    """One value of a section: its name, its AMQP type, and the value as text.

    `is_cut` says that the text is only the beginning; the whole has `characters`.
    """

    name: str
    type: str
    text: str
    characters: int
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class SectionView:
    """One section of a message, by AMQP's name of it, such as `application-properties`.

    `rows` are its first values, of `count`. `problem` says why the rest could not be read, None if all could.
    """

    name: str
    rows: tuple[SectionRow, ...]
    count: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message of a stream.

    `timestamp` is that of the chunk `chunk_id`; messages have none of their own. `key` and `generation` are those of
    the fragment's object. `raw_bytes` is the size of the whole message. `problem` says what is wrong with it, None if
    nothing is: bytes that are not AMQP 1.0, damaged AMQP, or a sub-batch that cannot be unpacked, and then there is no
    body. Of an erased message only its place is left.
    """

    offset: Offset
    chunk_id: ChunkId
    timestamp: TimestampMs
    entry: EntryPlace
    key: str
    generation: int
    raw_bytes: int
    sections: tuple[SectionView, ...] = ()
    body: BodyView | None = None
    is_erased: bool = False
    problem: str | None = None
