"""Connections by TLS."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from rstream import schema

from coldstream.errors import UnavailableError
from coldstream.live.address import BrokerAddress
from coldstream.live.connection import LiveConnection
from coldstream.live.member import connect_to_member
from tests.support.stream_broker import FakeBroker, answer

HOST_NAME = "localhost"
"""What the certificate is of."""


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Sign a certificate of `localhost` by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "broker.pem"
    path.write_bytes(
        signed.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


def served_with(certificate: Path) -> FakeBroker:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return FakeBroker(ssl_context=context)


async def test_an_authority_of_ones_own_is_trusted_when_it_is_named(certificate: Path) -> None:
    async with served_with(certificate) as broker:
        uri = f"rabbitmq-stream+tls://localhost:{broker.port}?cacertfile={certificate}"
        async with LiveConnection(BrokerAddress.from_uri(uri), "/") as live:
            assert await live.query_offset("s", "me") == 7


@pytest.mark.parametrize(("host", "option"), [("localhost", ""), ("127.0.0.1", "?cacertfile=")])
async def test_a_certificate_that_is_not_trusted_or_is_of_another_host_is_refused(
    certificate: Path, host: str, option: str
) -> None:
    async with served_with(certificate) as broker:
        uri = f"rabbitmq-stream+tls://{host}:{broker.port}" + (option and f"{option}{certificate}")
        with pytest.raises(UnavailableError, match="certificate verify failed"):
            async with LiveConnection(BrokerAddress.from_uri(uri), "/"):
                pass


def cluster_of(fakes: tuple[FakeBroker, FakeBroker], host: str) -> None:
    """Have two nodes call themselves by `host`, with a stream that is on the second one alone."""
    for fake in fakes:
        told = [schema.Property("advertised_host", host), schema.Property("advertised_port", str(fake.port))]
        fake.says[schema.Open] = lambda asked, told=told: [answer(schema.OpenResponse(asked.correlation_id, 1, told))]
        fake.says[schema.Metadata] = lambda asked: [
            answer(
                schema.MetadataResponse(
                    asked.correlation_id,
                    [schema.Broker(1, host, fakes[1].port)],
                    [schema.StreamMetadata("s", 1, 1, [])],
                )
            )
        ]


async def test_a_member_is_checked_by_the_name_that_it_advertises(certificate: Path) -> None:
    async with served_with(certificate) as one, served_with(certificate) as two:
        cluster_of((one, two), "localhost")
        address = BrokerAddress.from_uri(f"rabbitmq-stream+tls://localhost:{one.port}?cacertfile={certificate}")
        live = await connect_to_member(address, "/", "s", name="me")
        assert live.advertised == ("localhost", two.port)
        await live.__aexit__(None, None, None)


async def test_a_member_whose_certificate_is_of_another_name_gets_no_password(certificate: Path) -> None:
    async with served_with(certificate) as one, served_with(certificate) as two:
        cluster_of((one, two), "127.0.0.1")
        address = BrokerAddress.from_uri(f"rabbitmq-stream+tls://localhost:{one.port}?cacertfile={certificate}")
        with pytest.raises(UnavailableError, match="certificate verify failed"):
            await connect_to_member(address, "/", "s", name="me")
        assert two.taken == []
        # Where certificates have only the name of the address, that name leads to each node in turn.
        behind = BrokerAddress(((HOST_NAME, one.port), (HOST_NAME, two.port)), tls=True, ca_file=str(certificate))
        live = await connect_to_member(behind, "/", "s", name="me")
        assert live.advertised == ("127.0.0.1", two.port)
        await live.__aexit__(None, None, None)
