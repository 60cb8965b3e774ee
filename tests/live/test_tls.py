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

from coldstream.errors import UnavailableError
from coldstream.live.address import BrokerAddress
from coldstream.live.connection import LiveConnection
from tests.support.stream_broker import FakeBroker


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
