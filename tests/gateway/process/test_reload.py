"""What a child in front of a broker reads again: its certificate, and the authorities that vouch for the broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from coldstream.gateway.figures import GatewayFigures
from coldstream.gateway.history.memory import MemoryHistory
from coldstream.gateway.process.addresses import HostPort
from coldstream.gateway.process.listening import hold_address
from coldstream.gateway.process.options import BrokerSide, GatewayOptions, ServerTls
from coldstream.gateway.process.served_proxy import open_proxy
from coldstream.gateway.process.tls import ServerCertificate
from tests.support.certificates import self_signed_pem, shows, trusts
from tests.support.gateway import HOST
from tests.support.raw_stream_client import RawStreamClient
from tests.support.stream_broker import FakeBroker


async def test_files_of_both_sides_are_read_again_and_wrong_ones_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ca, ours = tmp_path / "ca.pem", tmp_path / "ours.pem"
    broker_pem = self_signed_pem(tmp_path / "broker.pem")
    self_signed_pem(ca)
    self_signed_pem(ours)
    with hold_address(HostPort(HOST, 0)) as held:
        async with FakeBroker(ssl_context=shows(broker_pem)) as broker:
            options = GatewayOptions(
                HostPort(*held.getsockname()[:2]),
                BrokerSide((HostPort(HOST, broker.port),), is_tls=True, ca=ca),
                tls=ServerTls(ours, ours),
            )
            place = (options.listen.host, options.listen.port)
            certificate = ServerCertificate(ServerTls(ours, ours))
            served = await open_proxy(options, MemoryHistory(), GatewayFigures(), certificate)
            try:
                async with RawStreamClient(place, trusts(ours)) as client:
                    assert await client.ended()  # the broker shows a certificate that nobody vouches for
                ca.write_bytes(broker_pem.read_bytes())
                first, trusting = ours.read_bytes(), trusts(ours)
                ours.write_text("nothing")
                served.reload()
                async with RawStreamClient(place, trusting) as client:
                    await client.open()
                ca.write_text("nothing")
                ours.write_bytes(first)
                served.reload()
                async with RawStreamClient(place, trusting) as client:
                    await client.open()
                self_signed_pem(ours)
                served.reload()
                async with RawStreamClient(place, trusts(ours)) as client:
                    await client.open()
            finally:
                await served.close()
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [
        "the certificate cannot be read again; the one before stays",
        "the broker's authorities cannot be read again; those before stay",
        "the broker's authorities cannot be read again; those before stay",
    ]
