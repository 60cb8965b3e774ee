"""The server's metrics page has those of the streams' client, each with its type."""

from __future__ import annotations

import re
from dataclasses import fields

from coldstream.serve.options import ServeOptions
from coldstream.serve.serve_metrics import ServeMetrics
from coldstream.serve.stream_host import StreamHost
from coldstream.store.keys import Keys
from coldstream.store.memory.objects import MemoryObjects
from coldstream.store.memory.table import MemoryTable
from coldstream.streams import DirectArchive, StreamClient, StreamMetrics
from coldstream.web.request_limits import RequestLimits


async def test_every_metric_of_the_client_is_on_the_page_with_its_type() -> None:
    archive = DirectArchive(MemoryTable(), MemoryObjects(), Keys(""))
    async with await StreamClient.open(archive) as client:
        await client.create("s")
        stream = await client.open_stream("s")
        await stream.append([b"a"])
        text = ServeMetrics(StreamHost(client, archive, ServeOptions()), RequestLimits(1, 1)).text()
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    values = {name: float(value) for name, value in re.findall(r"^(coldstream_streams_\S+) (\S+)$", text, re.MULTILINE)}
    assert len(values) == len(fields(StreamMetrics))
    for name in values:
        assert types[name] == ("counter" if name.endswith("_total") else "gauge")
    assert values["coldstream_streams_open_streams"] == values["coldstream_streams_wal_chunks_total"] == 1
