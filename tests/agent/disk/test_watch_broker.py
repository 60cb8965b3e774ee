from __future__ import annotations

import queue
import time

from coldstream.agent.disk.watch import SegmentWatch
from tests.support.broker import Broker


def test_each_segment_that_a_real_broker_rolls_is_told_once_and_at_once(broker: Broker) -> None:
    # The broker makes its directory with its first stream; an absent one is only looked for every 2 seconds.
    with broker.connect() as streams:
        streams.create_stream("watched-before", max_segment_bytes=100_000)
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    watch = SegmentWatch(broker.data_directory, told.put, events_scan_s=600)
    watch.start()
    try:
        with broker.connect() as streams:
            streams.create_stream("watched", max_segment_bytes=100_000)
            directory = broker.stream_directory("watched")
            time.sleep(0.2)
            before = len(list(directory.glob("*.segment")))
            while not told.empty():
                told.get()
            for _ in range(10):
                streams.publish("watched", [bytes(1000)] * 100)
        rolled = len(list(directory.glob("*.segment"))) - before
        assert rolled > 3
        assert [told.get(timeout=1) for _ in range(rolled)] == [directory.name] * rolled
        time.sleep(0.1)
        assert told.empty()
    finally:
        watch.stop()
