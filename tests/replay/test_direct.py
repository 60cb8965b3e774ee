"""A direct stream, replayed into a stream of a real broker."""

from __future__ import annotations

import pytest

from coldstream.replay.request import ReplayRequest
from coldstream.replay.stream import replay_to_stream
from coldstream.replay.target import StreamTarget
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.streams import DirectArchive
from coldstream.units import Offset
from tests.support.broker import Broker
from tests.support.direct_streams import DATA_BYTES, append, direct_head


@pytest.mark.parametrize("is_published", [False, True], ids=["plain", "published"])
def test_a_direct_stream_is_replayed_in_order_each_message_once(broker: Broker, *, is_published: bool) -> None:
    archive = DirectArchive(MemoryTable(), MemoryObjects(), Keys())
    appended = append(archive, 2, is_published=is_published)
    target = StreamTarget(broker.stream_uri, f"from direct {'published' if is_published else 'plain'}")
    with broker.connect() as streams:
        streams.create_stream(target.name, max_segment_bytes=1_000_000)
        for _ in range(2):
            head = direct_head(archive)
            assert head.next_offset is not None
            request = ReplayRequest(head.stream, Offset(0), head.next_offset)
            assert replay_to_stream(archive.table, archive.objects, request, target).is_complete
            found = [raw[DATA_BYTES:] for _, raw in streams.read(target.name, len(appended))]
            assert found == appended
            appended += append(archive, 1, is_published=is_published)
