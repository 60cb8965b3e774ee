"""The change in a journal event's item: bytes that give the change back exactly.

    change      version u8 (1) · zlib stream of JSON in UTF-8 · binary contents
    JSON        {"head": {...}, "writes": [["PutEntry", {"entry": {...}}], ...]}
    dictionary  preset for zlib: the text below · incarnation · key of the event, if it has one

A value is an object of its fields by name; a field that is None, false or 0 by default and by value is left out. For a
sparse index and for frames, whose bytes are as in the entry's item, the JSON has the length; they do not compress, and
follow in the same order. The head's stream is not repeated: it is the partition. Nor is the event: its item has it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from coldstream.errors import BadLengthError, BadVersionError, CorruptionError, InvalidInputError
from coldstream.manifest.appender import Appender
from coldstream.manifest.appender_text import appender_json, appender_of_json
from coldstream.manifest.change import (
    Change,
    DeleteEntry,
    DeleteGap,
    DeleteHold,
    DeleteLoss,
    DeleteQuarantine,
    DeleteTombstone,
    EntryVersion,
    PutEntry,
    PutErasure,
    PutGap,
    PutHold,
    PutLoss,
    PutQuarantine,
    PutTombstone,
    Relink,
    ReplaceEntry,
    ReplaceGap,
    RequireEntry,
    RequireGap,
    Write,
)
from coldstream.manifest.entry import (
    DeletionClaim,
    Encoding,
    Erasure,
    ErasureState,
    FragmentEntry,
    Gap,
    Head,
    Hold,
    JournalEvent,
    LastUserChunk,
    Loss,
    Quarantine,
    StorageClass,
    Tombstone,
)
from coldstream.manifest.frames import Frames
from coldstream.manifest.sparse import SparseIndex
from coldstream.manifest.stream import StreamId
from coldstream.plain_json import read_json

VERSION = 1

MAX_JSON_BYTES = 32 << 20
"""Far more than a hundred items take; what inflates past it is damaged."""

_TEXT = (
    b'["RequireEntry",{"version":["DeleteTombstone",{"tombstone":["PutTombstone",{"tombstone":{"key":"","due_at":'
    b'["DeleteEntry",{"before":{"next_offset":["Relink",{"before":{"next_offset":,"prior_timestamp":,"running_timestamp":'
    b'["ReplaceEntry",{"before":["PutGap",{"gap":{"first_offset":["DeleteGap",{"before":["ReplaceGap",{"before":'
    b'"reason":"in quarantine: ["PutLoss",{"loss":["PutQuarantine",{"quarantine":"etag":"copies":1'
    b'"last_user_chunk":{"chunk_id":,"position":,"timestamp":"frames":"storage_class":"erased":true'
    b'"floor":,"generation":,"deleted_at":,"purge_at":,"holds":,"erasures":,"gaps":,"losses":,"quarantined":'
    b'{"head":{"revision":,"first_offset":0,"next_offset":,"first_timestamp":17,"greatest_timestamp":17,"epoch":1,'
    b'"fragments":,"chunks":,"records":,"messages":,"data_bytes":,"object_bytes":,"journal_from":1},"writes":'
    b'[["PutEntry",{"entry":{"first_offset":,"next_offset":,"first_timestamp":17,"last_timestamp":17,'
    b'"greatest_timestamp":17,"epoch":1,"chunks":,"records":,"messages":,"data_bytes":67,"object_bytes":67,'
    b'"key":"/data/00000000000000.fragment","crc32":,"sparse":5,"last_user_chunk":{"chunk_id":,"position":,'
    b'"timestamp":17},"segment_offset":,"encoding":"identity","first_epoch":1,"data_crc32":,"prior_offset":,'
    b'"prior_timestamp":17}}]]}'
)
"""What the JSON of changes is made of; part of the format. The most frequent comes last: near references are short."""

_SHAPES: Mapping[type[Write], Mapping[str, type]] = {
    PutEntry: {"entry": FragmentEntry},
    ReplaceEntry: {"before": EntryVersion, "entry": FragmentEntry},
    Relink: {"before": EntryVersion},
    DeleteEntry: {"before": EntryVersion},
    RequireEntry: {"version": EntryVersion},
    PutGap: {"gap": Gap},
    ReplaceGap: {"before": Gap, "gap": Gap},
    DeleteGap: {"before": Gap},
    RequireGap: {"gap": Gap},
    PutLoss: {"loss": Loss},
    DeleteLoss: {"loss": Loss},
    PutQuarantine: {"quarantine": Quarantine},
    DeleteQuarantine: {"before": Quarantine},
    PutHold: {"hold": Hold},
    DeleteHold: {"hold": Hold},
    PutErasure: {"before": Erasure, "erasure": Erasure},
    PutTombstone: {"tombstone": Tombstone},
    DeleteTombstone: {"tombstone": Tombstone},
}
"""The values that each kind of write holds; its other fields are numbers."""

_KINDS: Mapping[str, type[Write]] = {kind.__name__: kind for kind in _SHAPES}

_Value = TypeVar("_Value")


def recorded(change: Change) -> bytes:
    """Encode a change without its stream and event; `change_of` is the inverse. A commit of 64 MiB: about 800 bytes."""
    binary = bytearray()
    content = {
        "head": _plain(change.head, binary, "stream"),
        "writes": [[type(write).__name__, _plain(write, binary)] for write in change.writes],
    }
    packer = zlib.compressobj(9, zdict=_dictionary(change.head.stream, change.event))
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    return bytes((VERSION,)) + packer.compress(text) + packer.flush() + binary


def change_of(stream: StreamId, event: JournalEvent, data: bytes) -> Change:
    """Decode the change that the event's item holds. Raises CorruptionError, BadVersionError if it is a later one."""
    source = f"change to revision {event.revision} of {stream.incarnation}"
    if data[:1] != bytes((VERSION,)):
        raise BadVersionError(source, 0, "version of a change", expected=VERSION, found=data[:1].hex() or "nothing")
    unpacker = zlib.decompressobj(zdict=_dictionary(stream, event))
    try:
        text = unpacker.decompress(data[1:], MAX_JSON_BYTES)
        if not unpacker.eof:
            raise BadLengthError(source, 0, "a change that does not end with its bytes")
        decoder = _Decoder(source, unpacker.unused_data)
        content = read_json(text)
        head = decoder.value(Head, content["head"], stream=stream)
        change = Change(head, event, tuple(decoder.write(*one) for one in content["writes"]))
    except (zlib.error, ValueError, TypeError, KeyError, AttributeError) as err:
        raise CorruptionError(source, 0, f"malformed change: {err}") from err
    except InvalidInputError as err:
        raise CorruptionError(source, 0, f"malformed change: {err}") from err
    if decoder.binary:
        raise BadLengthError(source, 0, "binary contents past the last", found=len(decoder.binary))
    return change


def _dictionary(stream: StreamId, event: JournalEvent) -> bytes:
    # Keys of objects hold the incarnation, and the event's key is that of the entry: neither costs its length again.
    return _TEXT + stream.incarnation.encode() + (event.key or "").encode()


def _plain(value: Any, binary: bytearray, *but: str) -> dict[str, Any]:
    """Return the fields of a dataclass in JSON's types, without those that say nothing; add what is binary."""
    found: dict[str, Any] = {}
    for field in fields(value):
        content = getattr(value, field.name)
        if field.name in but or (content in (None, False, 0, ()) and content == field.default) or content is None:
            continue
        match content:
            case SparseIndex() | Frames():
                encoded = content.to_bytes()
                binary += encoded
                found[field.name] = len(encoded)
            case Appender():
                found[field.name] = appender_json(content)
            case bool() | int() | str():
                found[field.name] = content
            case tuple():
                found[field.name] = [_plain(one, binary) for one in content]
            case _:
                found[field.name] = _plain(content, binary)
    return found


@dataclass(slots=True)
class _Decoder:
    """Reads values in the order of the JSON; `binary` are the binary contents that are left."""

    source: str
    binary: bytes

    def write(self, name: str, content: Mapping[str, Any]) -> Write:
        if (kind := _KINDS.get(name)) is None:
            raise BadVersionError(self.source, 0, "kind of write", expected=" or ".join(_KINDS), found=name)
        held: dict[str, Any] = {
            field: self.value(shape, content[field]) if field in content else None
            for field, shape in _SHAPES[kind].items()
        }
        absent = {field.name: None for field in fields(kind)}
        return kind(**absent | dict(content) | held)

    def value(self, shape: type[_Value], content: Mapping[str, Any], **given: Any) -> _Value:
        """Make a dataclass of its fields; a field without a default that is absent is None."""
        decoders: Mapping[str, Callable[[Any], Any]] = {
            "sparse": lambda length: SparseIndex.from_bytes(self._take(length), source=self.source),
            "frames": lambda length: Frames.from_bytes(self._take(length), source=self.source),
            "last_user_chunk": lambda held: self.value(LastUserChunk, held),
            "encoding": Encoding,
            "storage_class": StorageClass,
            "state": ErasureState,
            "appender": appender_of_json,
            "claims": lambda held: tuple(self.value(DeletionClaim, one) for one in held),
        }
        absent = {field.name: None for field in fields(shape) if field.default is MISSING}  # type: ignore[arg-type]
        held = {name: decoders[name](one) if name in decoders else one for name, one in content.items()}
        return shape(**absent | held | given)

    def _take(self, length: int) -> bytes:
        if not 0 < length <= len(self.binary):
            raise BadLengthError(self.source, 0, "binary contents", expected=length, found=len(self.binary))
        taken, self.binary = self.binary[:length], self.binary[length:]
        return taken
