"""Items of the manifest as DynamoDB answers with them, and the changes in its journal."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from email.message import Message
from http.client import HTTPException
from typing import Any

from coldstream.manifest.entry import JournalEvent, JournalKind
from coldstream.manifest.frames import Frames
from coldstream.manifest.recorded import VERSION, _dictionary, change_of, recorded
from coldstream.manifest.shard_events import ShardEvent, ShardEventKind, event_of_map, map_bytes, map_of
from coldstream.manifest.sparse import SparseIndex
from coldstream.store import attributes
from coldstream.store.fast_reads import _read_answer
from coldstream.store.sortkeys import ACCESS, CLUSTERS, POLICIES, REGISTRY
from coldstream.units import TimestampMs
from tests.fuzz.fuzz_target import CORRUPT, SOURCE, FuzzTarget, choose, chosen, same
from tests.fuzz.item_samples import wire_items
from tests.manifest.recorded_samples import HEADS, WRITES, change_of_writes
from tests.manifest.shard_samples import AT, bound_map
from tests.manifest.world import STREAM

_HEADERS = Message()
_HEADERS["x-amzn-requestid"] = "a request"
_KEYS = {"stream": STREAM.incarnation, "item": "log#head"}
_READERS: tuple[Callable[[attributes.Attributes], Any], ...] = (
    attributes.row_of,
    attributes.stream_of,
    attributes.cluster_of,
    attributes.grant_of,
    attributes.policy_of,
    attributes.state_of,
)


_PLACES = (b"nowhere", *(f'"{place}"'.encode() for place in (REGISTRY, CLUSTERS, ACCESS, POLICIES, "#jobs")))
"""The partitions of what the readers read, after those of streams."""


def _item(data: bytes) -> None:
    """Read an answer of DynamoDB: whatever is in front of it may have sent it."""
    read, data = choose(data, _READERS)
    try:
        item = _read_answer(200, _HEADERS, data).get("Item")  # type: ignore[arg-type]  # a message, without HTTP's extras
    except HTTPException:
        return  # the caller's, who asks again
    if not _is_item(item):
        return  # the API promises that much
    held = {**{name: {"S": text} for name, text in _KEYS.items()}, **item}
    read(attributes.attributes_of(held))


def _is_item(item: Any) -> bool:
    if not isinstance(item, dict) or not all(isinstance(one, dict) and len(one) == 1 for one in item.values()):
        return False
    texts = [text for one in item.values() for kind, text in one.items() if kind in {"S", "N"}]
    return all(isinstance(text, str) for text in texts) and all(
        "S" in item[name] and item[name]["S"] for name in _KEYS if name in item
    )


def _change(data: bytes) -> None:
    """Read a recorded change: a fuzzer does not deflate, so this does."""
    is_plain, data = choose(data, (True, False))
    event = JournalEvent(7, JournalKind.FRAGMENT_COMMITTED, AT, None, None, key="data/ü")
    if is_plain:
        text, _, binary = data.partition(b"\0")
        data = bytes((VERSION,)) + _deflated(text, event) + binary
    change = change_of(STREAM, event, data)
    with suppress(TypeError, ValueError, AttributeError, OverflowError):  # what was read may hold what nobody writes
        same(change_of(STREAM, event, recorded(change)), change)


def _deflated(text: bytes, event: JournalEvent) -> bytes:
    packer = zlib.compressobj(1, zdict=_dictionary(STREAM, event))
    return packer.compress(text) + packer.flush()


def _shard_map(data: bytes) -> None:
    read, data = choose(data, (map_of, event_of_map))
    packed = bytes((1,)) + zlib.compress(data, 1)
    found = read(packed, source=SOURCE)
    event, shard_map = found if isinstance(found, tuple) else (None, found)
    again = read(map_bytes(shard_map, event), source=SOURCE)
    same(again, found)


def _index(data: bytes) -> None:
    kind, data = choose(data, (SparseIndex, Frames))
    found = kind.from_bytes(data, source=SOURCE)
    same(kind.from_bytes(found.to_bytes(), source=SOURCE), found)


def _change_seeds() -> Iterator[bytes]:
    for head in HEADS:
        yield chosen(1, recorded(change_of_writes(WRITES[:3], head)))
    for write in WRITES:
        change = change_of_writes((write,))
        unpacker = zlib.decompressobj(zdict=_dictionary(STREAM, change.event))
        text = unpacker.decompress(recorded(change)[1:])
        yield chosen(0, text + b"\0" + unpacker.unused_data)
    yield chosen(0, b'{"head": ' + b"[" * 1500)


def _item_seeds() -> Iterator[bytes]:
    for item in wire_items():
        number = next((number for number, place in enumerate(_PLACES) if place in item), 0)
        yield chosen(number, item)
    yield chosen(0, b'{"Item": ' + b"[" * 1500)


def _map_seeds() -> Iterator[bytes]:
    found = bound_map(3)
    event = ShardEvent(found.revision, TimestampMs(0), ShardEventKind.BIND, "alice", "ü")
    yield chosen(0, zlib.decompress(map_bytes(found)[1:]))
    yield chosen(1, zlib.decompress(map_bytes(found, event)[1:]))
    yield chosen(0, b"[" * 1500)


def _index_seeds() -> Iterator[bytes]:
    yield chosen(
        0, SparseIndex.from_bytes(b"\x01\x00\x00\x08\x02\x00\x05\x01\x80\x01\x03\x04", source=SOURCE).to_bytes()
    )
    yield chosen(1, Frames((17, 1 << 40, 1 << 41)).to_bytes())


TARGETS = (
    FuzzTarget("manifest-items", _item, _item_seeds, CORRUPT, "manifest item "),
    FuzzTarget("recorded-changes", _change, _change_seeds, CORRUPT, "change to revision 7 of ", memory_bytes=2 << 20),
    FuzzTarget("shard-maps", _shard_map, _map_seeds, CORRUPT, memory_bytes=2 << 20),
    FuzzTarget("sparse-indexes", _index, _index_seeds, CORRUPT),
)
