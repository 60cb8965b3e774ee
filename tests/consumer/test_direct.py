"""A consumer of archive and broker, given the name of a direct stream, which no broker continues."""

from __future__ import annotations

import threading

import pytest

import coldstream
from coldstream.errors import StreamNotFoundError
from coldstream.store.keys import Keys
from coldstream.store.memory.table import MemoryTable
from coldstream.streams import DirectArchive
from tests.support.broker import Broker
from tests.support.direct_streams import append
from tests.support.http_archive import HttpObjects, http_archive


def test_it_says_that_the_broker_has_no_such_stream(broker: Broker) -> None:
    objects = HttpObjects()
    archive = DirectArchive(MemoryTable(), objects, Keys())
    append(archive, 2, name="direct alone")
    with (
        http_archive(archive.table, objects) as served,
        coldstream.BlockingConsumer(
            "direct alone", coldstream.FIRST, resolver=served.url, broker=broker.stream_uri, super_stream=False
        ) as consumer,
    ):
        overdue = threading.Timer(60, consumer.close)
        overdue.start()
        try:
            with pytest.raises(StreamNotFoundError, match="direct alone"):
                list(consumer.messages())
        finally:
            overdue.cancel()
