from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coldstream.errors import InvalidSettingError
from coldstream.gateway.process.addresses import HostPort, NodeAddress
from coldstream.gateway.process.options import AloneSide, BrokerSide, GatewayOptions
from coldstream.units import MIB

HERE = HostPort("127.0.0.1", 5552)
BROKER = BrokerSide((HERE,))
ALONE = AloneSide(users=Path("users"))


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: GatewayOptions(HERE), "--broker"),
        (lambda: GatewayOptions(HERE, broker=BROKER, alone=ALONE), "--broker"),
        (lambda: GatewayOptions(HERE, BROKER, advertise=HERE, nodes=(NodeAddress(HERE, HERE),)), "--node"),
        (lambda: GatewayOptions(HERE, alone=ALONE, nodes=(NodeAddress(HERE, HERE),)), "--node"),
        (lambda: GatewayOptions(HERE, BROKER, memory_bytes=31 * MIB, processes=2), "--memory"),
        (lambda: GatewayOptions(HERE, BROKER, max_connections=1, processes=2), "--max-connections"),
        (lambda: BrokerSide(()), "--broker"),
        (lambda: BrokerSide((HERE,), ca=Path("ca")), "--broker-tls"),
        (lambda: BrokerSide((HERE,), server_name="x"), "--broker-tls"),
        (AloneSide, "--users"),
        (lambda: AloneSide(Path("users"), ("command",)), "--users"),
    ],
)
def test_what_cannot_be_is_refused_by_the_options_name(make: Callable[[], object], named: str) -> None:
    with pytest.raises(InvalidSettingError, match=f"^{named}"):
        make()


def test_each_process_has_its_share() -> None:
    options = GatewayOptions(HERE, BROKER, memory_bytes=100 * MIB, processes=3, max_connections=10)
    assert options.memory_of_process_bytes == 100 * MIB // 3
    assert options.connections_of_process == 4
