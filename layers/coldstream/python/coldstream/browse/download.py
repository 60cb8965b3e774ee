"""A whole message, or its whole body, as a stream of blocks to save: whatever views cut is here.

One GET reads the piece of the fragment that holds the message, which is about a MiB, or the message's chunk if that is
larger. Memory is that, and what a sub-batch unpacks to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from coldstream.browse.messages import find_message
from coldstream.errors import BadMagicError, NotFoundError
from coldstream.format.amqp.sections import DATA, body_section, locate, read_body
from coldstream.manifest.stream import StreamId
from coldstream.store.ports import ManifestReads, ObjectReads
from coldstream.units import KIB, Offset

BLOCK_BYTES = 64 * KIB

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME = 80


class DownloadPart(StrEnum):
    """What of a message is saved. RAW: as it was published. BODY: the bytes of its data sections."""

    BODY = "body"
    RAW = "raw"


@dataclass(frozen=True, slots=True)
class MessageDownload:
    """Bytes to save, in blocks, of a total size. `file_name` is ASCII without anything that a header or shell minds."""

    file_name: str
    size_bytes: int
    blocks: Iterator[bytes]


def open_download(
    table: ManifestReads, objects: ObjectReads, stream: StreamId, offset: Offset, what: DownloadPart = DownloadPart.BODY
) -> MessageDownload:
    """Return a message's bytes. The body of a message without data sections is the whole message, and so is a raw one.

    Cost: one Query and one GET, before it returns. Raises GapError, NotFoundError if no message has that offset, or its
    sub-batch cannot be unpacked; CorruptionError for a damaged chunk or message, NotRestoredError, UnavailableError.
    """
    message, _, _ = find_message(table, objects, stream, offset)
    if message.problem is not None:
        raise NotFoundError(f"the message at offset {offset} of {stream} cannot be read: {message.problem}")
    content = message.raw
    part = DownloadPart.RAW
    if what is DownloadPart.BODY:
        raw = bytes(message.raw)
        try:
            sections = locate(raw, source=f"message at offset {offset}")
        except BadMagicError:
            sections = {}
        if body_section(sections, source=f"message at offset {offset}") == DATA:
            content = memoryview(read_body(raw, sections, source=f"message at offset {offset}"))
            part = DownloadPart.BODY
    return MessageDownload(_file_name(stream, offset, part), len(content), _blocks(content))


def _file_name(stream: StreamId, offset: Offset, part: DownloadPart) -> str:
    name = _UNSAFE.sub("_", stream.name).strip("._-")[:_MAX_NAME] or "stream"
    return f"{name}-{offset}.{'bin' if part is DownloadPart.BODY else 'amqp'}"


def _blocks(content: memoryview) -> Iterator[bytes]:
    for at in range(0, len(content), BLOCK_BYTES):
        yield bytes(content[at : at + BLOCK_BYTES])
