from __future__ import annotations

import pytest

from coldstream.agent.management import BrokerStream
from coldstream.agent.names import candidates, written
from tests.support.broker import Broker


@pytest.mark.parametrize(
    ("vhost", "name"), [("/", "names.of-a=stream_1"), ("grün/1 ", "über: 注文\t*"), ("a_b", "c_d")]
)
def test_a_real_broker_writes_names_so(broker: Broker, vhost: str, name: str) -> None:
    if vhost != "/":
        broker.add_vhost(vhost)
    with broker.connect(vhost) as streams:
        streams.create_stream(name, max_segment_bytes=1_000_000)
    directory = broker.stream_directory(name, vhost).name
    assert directory.rpartition("_")[0] == written(vhost, name)
    assert candidates(directory, [BrokerStream("/", "other"), BrokerStream(vhost, name)]) == [(vhost, name)]
