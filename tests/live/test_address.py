"""The URI of a broker."""

from __future__ import annotations

import ssl
from pathlib import Path
from urllib.parse import unquote

import pytest

from coldstream.errors import InvalidSettingError
from coldstream.live.address import BrokerAddress


def test_all_parts_are_read() -> None:
    address = BrokerAddress.from_uri(
        "rabbitmq-stream+tls://reader:secret@one:1,two,[::1]:3?cacertfile=/etc/ssl/broker%20ca.pem"
    )
    assert address.hosts == (("one", 1), ("two", 5551), ("::1", 3))
    assert (address.username, address.password) == ("reader", "secret")
    assert address.tls
    assert address.ca_file == "/etc/ssl/broker ca.pem"


def test_parts_left_out_have_the_defaults_of_a_fresh_broker() -> None:
    address = BrokerAddress.from_uri("rabbitmq-stream://localhost/")
    assert address == BrokerAddress((("localhost", 5552),), "guest", "guest")


def test_user_and_password_are_percent_encoded() -> None:
    address = BrokerAddress.from_uri("rabbitmq-stream://gr%C3%BCn%3A%40:p%2Fss%3F%25@localhost")
    assert (address.username, address.password) == ("grün:@", "p/ss?%")


def test_an_at_sign_in_the_password_may_stand_as_it_is() -> None:
    assert BrokerAddress.from_uri("rabbitmq-stream://me:a@b@localhost").password == "a@b"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        "amqp://me:s3cret@localhost",
        "rabbitmq-stream://",
        "rabbitmq-stream://me:s3cret@",
        "rabbitmq-stream://me:s3cret@localhost:0",
        "rabbitmq-stream://me:s3cret@localhost:65536",
        "rabbitmq-stream://me:s3cret@localhost:stream",
        "rabbitmq-stream://me:s3cret@one,,two",
        "rabbitmq-stream://me:s3cret@[::1",
        "rabbitmq-stream://me:s3cret@[::1]5",
        "rabbitmq-stream://me:s3cret@localhost/vhost",
        "rabbitmq-stream://me:s3cret%FF@localhost",
        "rabbitmq-stream://me:s3cret@localhost?heartbeat=3",
        "rabbitmq-stream://me:s3cret@localhost?load_balanced=yes",
        "rabbitmq-stream://me:s3cret@localhost?cacertfile=/ca.pem",
        "rabbitmq-stream+tls://me:s3cret@localhost?cacertfile=",
    ],
)
def test_a_malformed_address_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(InvalidSettingError, match="broker address") as refused:
        BrokerAddress.from_uri(text)
    assert "s3cret" not in str(refused.value)


def test_the_password_shows_nowhere() -> None:
    address = BrokerAddress.from_uri("rabbitmq-stream://me:s3cret@[::1],localhost:7")
    assert "s3cret" not in repr(address)
    assert str(address) == "rabbitmq-stream://[::1]:5552,localhost:7"


def test_tls_checks_certificates_and_names() -> None:
    context = BrokerAddress.from_uri("rabbitmq-stream+tls://localhost").ssl_context()
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert BrokerAddress.from_uri("rabbitmq-stream://localhost").ssl_context() is None


def test_a_file_of_authorities_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("no certificate")
    for name in ("bad.pem", "missing.pem", "%00"):
        address = BrokerAddress.from_uri(f"rabbitmq-stream+tls://localhost?cacertfile={tmp_path / name}")
        with pytest.raises(InvalidSettingError, match=f"{unquote(name)} cannot be read"):
            address.ssl_context()


def test_a_load_balancer_is_told_by_an_option() -> None:
    assert not BrokerAddress.from_uri("rabbitmq-stream://localhost").load_balanced
    assert BrokerAddress.from_uri("rabbitmq-stream://localhost?load_balanced=true").load_balanced
